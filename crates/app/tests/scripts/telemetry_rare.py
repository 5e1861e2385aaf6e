"""telemetry_rare.py SESSION_ID: the public Python client, unmodified, on events that cannot be made to happen at will."""
import json
import os
import sys

from kernel import Kernel

where = {"base_url": os.environ["CASEMENT_URL"], "api_key": os.environ["CASEMENT_KEY"]}
id = sys.argv[1]
client = Kernel(**where, max_retries=0, timeout=60)
strict = Kernel(**where, max_retries=0, timeout=60, _strict_response_validation=True)
asked = {"since": "2020-01-01T00:00:00Z", "limit": 100}


def told(events):
    return {one.event.type: one.event.data.to_dict() for one in events}


# The client decodes the types; of unknown types it keeps the fields.
typed = list(strict.browsers.telemetry.events(id, category=["system"], **asked))
plain = list(client.browsers.telemetry.events(id, category=["monitor"], **asked))
kinds = sorted(type(one.event).__name__ for one in typed + plain if one.event.type != "telemetry_dropped")
print(json.dumps({"kinds": kinds, **told(typed), **told(plain)}))
