ALTER TABLE audit_records_pending DROP COLUMN count;
ALTER TABLE audit_records DROP COLUMN count;
