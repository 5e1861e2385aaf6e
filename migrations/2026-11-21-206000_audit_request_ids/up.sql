-- The id of the request in its response and in the log; empty in earlier records.
ALTER TABLE audit_records ADD COLUMN request_id text NOT NULL DEFAULT '';
