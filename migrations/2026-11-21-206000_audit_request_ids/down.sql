ALTER TABLE audit_records DROP COLUMN request_id;
