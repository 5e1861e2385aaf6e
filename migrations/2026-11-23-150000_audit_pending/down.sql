DROP TABLE audit_records_marks;
DROP TABLE audit_records_pending;
