"""The making of a plan from a question (sweep this, drop that): a listing, the manifests that it asks for, a judgement.

The same question can be asked again: an execution makes a second plan, and takes only what stands in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import (
    Examination,
    Found,
    Listed,
    Plan,
    Policy,
    census,
    checkpoints_to_drop,
    drop,
    rewind,
    root_of_drop,
    sweep,
)
from holdfast.checkpoints.sweeps.manifest_reading import read_all
from holdfast.checkpoints.sweeps.plan_format import DROP, REWIND, SWEEP, Header, StoredPlan, StoredPolicy, items_of, kept_of
from holdfast.errors import PlanError
from holdfast.remote import DirectoryInfo, ObjectInfo
from holdfast.transfer import RemoteAccess


@dataclass(frozen=True, slots=True)
class RootListing:
    """``began_ns`` is by the store's clock; names are relative to the root."""

    began_ns: int
    listing: list[Listed]
    etags: dict[bytes, str]


async def list_root(access: RemoteAccess, root: str) -> RootListing:
    """List the whole root (``""``: the store, with its staged objects). Raises ``RemoteError``; a part is never returned.

    Costs one LIST for each thousand objects, and two requests for the clock.
    """
    began_ns = await access.now_ns()
    found = await access.list_all(root)
    skip = len(root) + 1 if root else 0
    listing = [_listed(info, info.key[skip:].encode(), began_ns) for info in found]
    etags = {info.key[skip:].encode(): info.etag for info in found if isinstance(info, ObjectInfo)}
    return RootListing(began_ns, listing, etags)


def _listed(info: ObjectInfo | DirectoryInfo, name: bytes, began_ns: int) -> Listed:
    """Return what was listed as judges know it. An object without a time counts as new: it never grows old, and so stays."""
    time_ns = info.modified_ns or began_ns
    if isinstance(info, DirectoryInfo):
        return Listed(name, 0, time_ns, is_directory=True)
    return Listed(name, info.size_bytes, time_ns)


@dataclass(frozen=True, slots=True)
class Question:
    """The question that a plan answers. ``checkpoints``, relative to ``root``, are to be dropped, or one to go back to."""

    kind: str
    root: str
    policy: Policy
    checkpoints: tuple[str, ...] = ()

    @classmethod
    def of(cls, header: Header) -> Question:
        """Return the question that a stored plan answers."""
        return cls(header.kind, header.root, header.policy.policy(), tuple(header.checkpoints))


async def make(access: RemoteAccess, question: Question, formats: Formats = FORMATS) -> tuple[Plan, RootListing]:
    """Make a plan. Raises ``RemoteError`` when the store does not answer, ``PlanError`` for what can't be dropped."""
    listed = await list_root(access, question.root)
    return await _judged(access, question, listed, formats), listed


async def make_drop(
    access: RemoteAccess, name: str, root: str | None, *, all_before: bool, formats: Formats = FORMATS
) -> tuple[Question, Plan, RootListing]:
    """Make the plan to drop the checkpoint ``name`` (a key), with ``all_before`` all up to it too.

    What other checkpoints below ``root`` refer to stays; by default that is the directory of the job's directory, in which
    its siblings lie. Raises ``PlanError`` when there is no such checkpoint.
    """
    root = root_of_drop(name.encode(), None if root is None else root.encode(), formats).decode()
    listed = await list_root(access, root)
    relative = name[len(root) + 1 :] if root else name
    find = partial(checkpoints_to_drop, listed.listing, relative.encode(), all_before=all_before, formats=formats)
    names = await trio.to_thread.run_sync(find)
    question = Question(DROP, root, Policy(), tuple(each.decode() for each in names))
    return question, await _judged(access, question, listed, formats), listed


async def take_census(access: RemoteAccess, root: str, formats: Formats = FORMATS) -> list[Found]:
    """Return the checkpoints below ``root``. Raises ``RemoteError``."""
    listed = await list_root(access, root)
    return await trio.to_thread.run_sync(census, listed.listing, formats)


def stored(plan: Plan, listed: RootListing, question: Question, *, plan_id: str, zone: str, store: str) -> StoredPlan:
    """Return the stored form of a plan."""
    items = items_of(plan, listed.etags)
    header = Header(
        id=plan_id,
        kind=question.kind,
        zone=zone,
        root=question.root,
        store=store,
        made_ns=listed.began_ns,
        policy=StoredPolicy.of(question.policy),
        checkpoints=list(question.checkpoints),
        kept=kept_of(plan.kept),
        count=len(items),
        size_bytes=sum(item.size_bytes for item in items),
    )
    return StoredPlan(header, items)


async def _judged(access: RemoteAccess, question: Question, listed: RootListing, formats: Formats) -> Plan:
    """Judge in a thread: a large listing takes seconds."""
    examination = await trio.to_thread.run_sync(_judge(question, listed, formats))
    while examination.wanted:
        answers = await read_all(access, question.root, examination.wanted)
        await trio.to_thread.run_sync(examination.supply, answers)
    return examination.result


def _judge(question: Question, listed: RootListing, formats: Formats) -> Callable[[], Examination[Plan]]:
    listing, now_ns = listed.listing, listed.began_ns
    if question.kind == SWEEP:
        return lambda: sweep(listing, question.policy, now_ns, formats)
    if question.kind == REWIND:
        batch = batch_named(question.checkpoints, formats)
        return lambda: Examination(_at_once(rewind(listing, batch, question.policy, now_ns, formats)))
    names = [name.encode() for name in question.checkpoints]
    return lambda: drop(listing, names, now_ns, formats)


def batch_named(names: tuple[str, ...], formats: Formats) -> int:
    """Return the batch that the plan of a rewind names. Raises ``PlanError``."""
    for layout in formats.locations if len(names) == 1 else ():
        batch = layout.batch_of(names[0].encode())
        if batch is not None and not batch.location:
            return batch.number
    raise PlanError("the plan of a rewind names no batch")


def _at_once(plan: Plan) -> Asking[Plan]:
    """Return a plan that needs no manifests as an examination does."""
    yield from ()
    return plan
