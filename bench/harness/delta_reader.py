"""Makes buckets, and reads a Delta table with other people's libraries (deltalake, pyarrow) from an object store.

It runs in the Python of bench/.objects, which has them: `python -m harness.delta_reader make|count BUCKET|TABLE`. Where
the store is it learns from the environment, as `curtail server` does. What it found it prints as JSON.
"""

import json
import os
import sys

from pyarrow import fs


def make(bucket):
    """A bucket, or a container of Azure."""
    files().create_dir(bucket)


def files():
    if "AZURITE_BLOB_STORAGE_URL" in os.environ:
        return fs.AzureFileSystem(
            account_name=os.environ["AZURE_STORAGE_ACCOUNT_NAME"],
            account_key=os.environ["AZURE_STORAGE_ACCOUNT_KEY"],
            blob_storage_authority=os.environ["AZURITE_BLOB_STORAGE_URL"].partition("://")[2],
            blob_storage_scheme="http",
        )
    return fs.S3FileSystem(
        access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        region=os.environ["AWS_REGION"],
        endpoint_override=os.environ["AWS_ENDPOINT_URL"],
        allow_bucket_creation=True,
    )


def count(table):
    """How often each trace ID is in a table of spans, and which operations its log has."""
    from deltalake import DeltaTable

    # It reads the same variables.
    delta = DeltaTable(table)
    traces = {}
    batches = delta.to_pyarrow_dataset().to_batches(columns=["trace_id"])
    for batch in batches:
        for trace_id in batch.column("trace_id").to_pylist():
            traces[trace_id.hex()] = traces.get(trace_id.hex(), 0) + 1
    operations = {}
    for commit in delta.history():
        name = commit.get("operation", "")
        operations[name] = operations.get(name, 0) + 1
    return {"traces": traces, "operations": operations, "files": len(delta.file_uris())}


if __name__ == "__main__":
    command, what = sys.argv[1:]
    print(json.dumps({"make": make, "count": count}[command](what)))
