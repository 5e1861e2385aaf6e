DROP INDEX audit_records_user_idx;
