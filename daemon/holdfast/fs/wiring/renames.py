"""Assembly of link and rename, which use parts of every package."""

from __future__ import annotations

from holdfast.fs.foundation import Foundation
from holdfast.fs.namespace.file_move import FileMoves
from holdfast.fs.namespace.large_directories import LargeDirectories
from holdfast.fs.namespace.link import Linking
from holdfast.fs.namespace.link_upload import LinkUpload
from holdfast.fs.namespace.lost_names import LostNames
from holdfast.fs.namespace.rename import Renaming
from holdfast.fs.namespace.rename_completion import RenameCompletion
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.namespace.rename_exchange import Exchange
from holdfast.fs.namespace.rename_replay import RenameReplay
from holdfast.fs.wiring.file_io import FileParts
from holdfast.fs.wiring.remote_view import ViewParts
from holdfast.fs.wiring.writeback import SendingParts


class RenameParts:
    """Operations that add or replace names."""

    def __init__(
        self, base: Foundation, views: ViewParts, sending: SendingParts, files: FileParts, lost_names: LostNames
    ) -> None:
        link_upload = LinkUpload(
            sending.publisher,
            sending.queue,
            base.policy,
            files.files,
            files.passthrough_writes,
            base.parts.index.entries,
            base.copies,
        )
        self.linking = Linking(
            base.directories,
            base.nodes,
            base.policy,
            files.local_files,
            link_upload,
            base.updates,
            files.check,
            base.parts.index.marks,
            views.guard,
            views.hints,
            base.hot,
        )
        completion = RenameCompletion(
            base.directories, base.nodes, files.files, sending.queue, sending.remote_deletes, files.background
        )
        self.renaming = Renaming(
            base.directories,
            base.nodes,
            base.policy,
            files.local_files,
            link_upload,
            _moves(base, views, sending, files, lost_names, link_upload),
            sending.versions,
            completion,
            _directory_renames(base, views),
            _exchange(base),
            _replay(base, sending, completion),
            views.guard,
        )


def _moves(
    base: Foundation,
    views: ViewParts,
    sending: SendingParts,
    files: FileParts,
    lost_names: LostNames,
    link_upload: LinkUpload,
) -> FileMoves:
    return FileMoves(
        base.directories,
        base.nodes,
        base.policy,
        base.parts.index.entries,
        base.updates,
        lost_names,
        base.parts.store.freeing,
        base.fetcher,
        sending.remote_deletes,
        sending.versions,
        link_upload,
        files.check,
        views.hints,
        base.hot,
    )


def _directory_renames(base: Foundation, views: ViewParts) -> DirectoryRenames:
    parts = base.parts
    return DirectoryRenames(
        base.directories,
        base.nodes,
        parts.zones,
        parts.names,
        parts.store.tree,
        base.view,
        views.whiteouts,
        parts.index.marks,
        LargeDirectories(parts.store.freeing),
    )


def _exchange(base: Foundation) -> Exchange:
    parts = base.parts
    return Exchange(
        base.directories,
        base.nodes,
        parts.zones,
        base.updates,
        parts.session.records,
        parts.store.tree,
        base.hot,
    )


def _replay(base: Foundation, sending: SendingParts, completion: RenameCompletion) -> RenameReplay:
    return RenameReplay(
        base.directories,
        base.nodes,
        base.policy,
        base.parts.index.entries,
        sending.versions,
        sending.remote_deletes,
        sending.queue,
        completion,
    )
