"""The C module. Everything else about the build stands in pyproject.toml, which has no settled words for this yet."""

from pathlib import Path

from setuptools import Extension, setup

_NATIVE = Path("daemon/holdfast/kernel/native")

setup(
    ext_modules=[
        Extension(
            "_holdfast_kernel",
            sources=sorted(map(str, _NATIVE.glob("*.c"))),
            depends=sorted(map(str, _NATIVE.glob("*.h"))),
            define_macros=[("_GNU_SOURCE", "1")],
            # Only what others must find is visible: pyfuse3's libfuse looks names up here first.
            extra_compile_args=["-std=c11", "-Wall", "-Wextra", "-fvisibility=hidden"],
        )
    ]
)
