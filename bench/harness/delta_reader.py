"""Makes buckets, and reads a Delta table with other people's libraries (deltalake, pyarrow) from a folder or an object store.

It runs in a Python that has them, that of bench/.objects or of bench/.venv: `python -m harness.delta_reader make BUCKET`,
`… count TABLE COLUMN`. Where a store is it learns from the environment, as `curtail server` does. What it found it prints
as JSON.
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


def count(table, column):
    """How often each value of a column is in a table, bytes as hexadecimal digits; which operations its log has."""
    from deltalake import DeltaTable

    # It reads the same variables.
    delta = DeltaTable(table)
    found = {}
    for batch in delta.to_pyarrow_dataset().to_batches(columns=[column]):
        for each in batch.column(column).value_counts():
            value, rows = each["values"].as_py(), each["counts"].as_py()
            text = value.hex() if isinstance(value, bytes) else str(value)
            found[text] = found.get(text, 0) + rows
    operations = {}
    for commit in delta.history():
        name = commit.get("operation", "")
        operations[name] = operations.get(name, 0) + 1
    return {"rows": found, "operations": operations, "files": len(delta.file_uris())}


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    print(json.dumps({"make": make, "count": count}[command](*words)), flush=True)
    # The threads of these libraries abort the process now and then when it ends in order ("terminate called without an
    # active exception"); there is nothing left to put in order.
    os._exit(0)
