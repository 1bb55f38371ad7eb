"""Makes buckets, and reads Delta tables in a folder or an object store with independent libraries (deltalake, pyarrow).

It runs in the Python of bench/.objects or bench/.venv, which have these libraries:
`python -m harness.delta_reader make BUCKET`, `… count TABLE COLUMN`. It takes address and keys of the object store
from the environment, as `curtail server` does, and prints its result as JSON.
"""

import json
import os
import sys

from pyarrow import fs


def make_bucket(bucket):
    """Makes a bucket, or a container of Azure."""
    open_file_system().create_dir(bucket)


def open_file_system():
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


def count_values(table, column):
    """Counts the rows of each value of a column (bytes as hexadecimal digits), commits by operation, and files."""
    from deltalake import DeltaTable

    # deltalake reads the same environment variables.
    delta = DeltaTable(table)
    row_counts = {}
    for batch in delta.to_pyarrow_dataset().to_batches(columns=[column]):
        for entry in batch.column(column).value_counts():
            value, rows = entry["values"].as_py(), entry["counts"].as_py()
            text = value.hex() if isinstance(value, bytes) else str(value)
            row_counts[text] = row_counts.get(text, 0) + rows
    operations = {}
    for commit in delta.history():
        name = commit.get("operation", "")
        operations[name] = operations.get(name, 0) + 1
    return {"rows": row_counts, "operations": operations, "files": len(delta.file_uris())}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps({"make": make_bucket, "count": count_values}[command](*arguments)), flush=True)
    # A normal exit sometimes aborts the process: threads of these libraries then still run ("terminate called without
    # an active exception").
    os._exit(0)
