"""An S3 of our own on this machine."""

import logging
import uuid
from collections.abc import Iterator

import fsspec
import pytest
from fsspec.asyn import sync


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a new bucket, which this process and those that it starts can reach. Moto keeps
    one set of buckets for all servers of a process."""
    moto = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(key, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        url = f"s3://tests-{uuid.uuid4().hex}"
        fsspec.filesystem("s3").mkdir(url)
        yield url
        for opened in s3fs.S3FileSystem._cache.values():
            sync(opened.loop, opened.s3.close)  # else the collector would, in somebody's test
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
