-- The number of calls of a record: more than one for repeated refused calls.
ALTER TABLE audit_records ADD COLUMN count bigint NOT NULL DEFAULT 1;
ALTER TABLE audit_records_pending ADD COLUMN count bigint NOT NULL DEFAULT 1;
