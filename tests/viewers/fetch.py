"""Unpacks a package of npm without npm.

    fetch.py URL SHA512 DIRECTORY

SHA512 is what the registry calls the package's integrity, in base64. What is in DIRECTORY is replaced.
"""

import base64
import hashlib
import io
import shutil
import sys
import tarfile
import urllib.request

url, sha512, directory = sys.argv[1:]
with urllib.request.urlopen(url, timeout=60) as answer:
    package = answer.read()
if base64.b64encode(hashlib.sha512(package).digest()).decode() != sha512:
    sys.exit(f"{url} is not what it was")
shutil.rmtree(directory, ignore_errors=True)
with tarfile.open(fileobj=io.BytesIO(package)) as archive:
    archive.extractall(directory, filter="data")
