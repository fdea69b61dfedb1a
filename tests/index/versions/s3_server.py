"""A server that speaks S3 on loopback, and what it was asked."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "indexes"
KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}


class Requests(logging.Handler):
    """The requests that a server got, as its log has them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> list[str]:
        """Those since the last time."""
        taken, self.lines = self.lines, []
        return taken


@dataclass(frozen=True)
class S3Server:
    url: str
    requests: Requests = field(default_factory=Requests)

    def set_access(self, folder: str) -> dict[str, str]:
        """The variables by which a folder of the bucket is used."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_REGION": "us-east-1",
            "COG_INDEX_URI": f"s3://{BUCKET}/{folder}",
        }

    def delete(self, part: str) -> int:
        """Delete what has a part in its name; gives how many."""
        client = boto3.client("s3", endpoint_url=self.url, **KEYS)
        names = [
            each["Key"]
            for each in client.list_objects_v2(Bucket=BUCKET)["Contents"]
            if part in each["Key"]
        ]
        for name in names:
            client.delete_object(Bucket=BUCKET, Key=name)
        return len(names)


@contextmanager
def serve_s3() -> Iterator[S3Server]:
    """Serve an empty bucket."""
    log = logging.getLogger("werkzeug")
    level, has_parents = log.level, log.propagate
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    serving = S3Server(f"http://{host}:{port}")
    boto3.client("s3", endpoint_url=serving.url, **KEYS).create_bucket(Bucket=BUCKET)
    log.addHandler(serving.requests)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield serving
    finally:
        log.removeHandler(serving.requests)
        log.setLevel(level)
        log.propagate = has_parents
        server.stop()
