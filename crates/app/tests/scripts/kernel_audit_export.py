"""The six methods for audit export destinations, with the unmodified newest public client. Prints the results."""

import json
import os

import kernel

client = kernel.Kernel(
    base_url=os.environ["CASEMENT_URL"], api_key=os.environ["CASEMENT_KEY"], max_retries=0,
    _strict_response_validation=True,
)
destinations = client.audit_logs.export_destinations
new = {"bucket": "records", "format": "jsonl.gz", "prefix": "client", "region": "us-east-1", "type": "s3"}


def refused(action):
    try:
        action()
    except kernel.APIStatusError as error:
        return [type(error).__name__, error.body["code"]]
    return "not refused"


made = destinations.create(**new, role_arn="operator")
read = destinations.retrieve(made.id)
tested = destinations.test(made.id)
active = destinations.update(made.id, status="active")
listed = [one.id for one in destinations.list(limit=10)]
other_role = refused(lambda: destinations.create(**new, role_arn="arn:aws:iam::123456789012:role/exporter"))
other_bucket = refused(lambda: destinations.update(made.id, bucket="others"))
destinations.delete(made.id)
print(json.dumps({
    "made": [made.status, made.role_arn, made.external_id == made.id, made.last_exported_cursor],
    "read": read == made,
    "tested": tested.to_dict(),
    "active": [active.status, active.last_exported_cursor is not None],
    "listed": made.id in listed,
    "other role": other_role,
    "other bucket": other_bucket,
    "gone": refused(lambda: destinations.retrieve(made.id)),
}))
