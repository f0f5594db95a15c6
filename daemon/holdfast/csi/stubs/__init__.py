"""Messages of the Container Storage Interface 1.12 and of kubelet's registration of plugins, made by protoc.

docs/contributing.md says from which files, and how to make them again. Their classes are made at run time: no checker of
types knows them.
"""

from typing import Any

from holdfast.csi.stubs import csi_pb2, pluginregistration_pb2

csi: Any = csi_pb2
registration: Any = pluginregistration_pb2
