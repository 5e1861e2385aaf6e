-- For how many calls a record stands: more than one for refused tries.
ALTER TABLE audit_records ADD COLUMN count bigint NOT NULL DEFAULT 1;
ALTER TABLE audit_records_pending ADD COLUMN count bigint NOT NULL DEFAULT 1;
