-- Ascending, and read backwards: new entries are appended to the index, whose pages stay full. In a descending index
-- every page would be half empty.
DROP INDEX audit_records_organization_id_idx;
CREATE INDEX audit_records_organization_id_idx ON audit_records (organization_id, at, id);
-- Rare values have partial indexes. Frequent values need none, because a scan of all records finds them soon.
CREATE INDEX audit_records_rare_method_idx ON audit_records (organization_id, at, id)
    WHERE method NOT IN ('GET', 'POST', 'DELETE');
CREATE INDEX audit_records_rare_strategy_idx ON audit_records (organization_id, at, id) WHERE auth_strategy <> 'api_key';
CREATE INDEX audit_records_rare_service_idx ON audit_records (organization_id, at, id) WHERE service <> 'api';
