DROP TABLE audit_records_recovered;
