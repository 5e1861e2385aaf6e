ALTER TABLE audit_records_marks DROP COLUMN marked_at;
DROP TABLE audit_records_complete;
