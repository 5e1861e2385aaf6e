-- How the request is called in its answer and in the log; empty in records of before.
ALTER TABLE audit_records ADD COLUMN request_id text NOT NULL DEFAULT '';
