"""The image for Kubernetes, in the form that container runtimes import."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import IO, cast

from systemd.kubernetes.image import write_image


def test_an_image_has_its_files_in_one_layer_with_the_digest_that_it_names(tmp_path: Path) -> None:
    root, out = tmp_path / "root", tmp_path / "image.tar"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/holdfast").write_text("a program")
    write_image(root, out, "localhost/holdfast:test")
    with tarfile.open(out) as image:
        (manifest,) = json.loads(_read(image, "manifest.json"))
        assert manifest["RepoTags"] == ["localhost/holdfast:test"]
        config = _read(image, manifest["Config"])
        assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
        (layer,) = manifest["Layers"]
        assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(_read(image, layer)).hexdigest()}"]
        with tarfile.open(fileobj=image.extractfile(layer)) as files:
            assert _read(files, "./usr/bin/holdfast") == b"a program"


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    return cast(IO[bytes], archive.extractfile(name)).read()
