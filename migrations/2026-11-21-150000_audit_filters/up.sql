-- In the order of arrival, read backwards: new entries go to the end of an index, whose pages stay full. The other way round every
-- page was left half empty.
DROP INDEX audit_records_organization_id_idx;
CREATE INDEX audit_records_organization_id_idx ON audit_records (organization_id, at, id);
-- What few records have is looked for in few. What most have is soon found on the way through all, and needs no index.
CREATE INDEX audit_records_rare_method_idx ON audit_records (organization_id, at, id)
    WHERE method NOT IN ('GET', 'POST', 'DELETE');
CREATE INDEX audit_records_rare_strategy_idx ON audit_records (organization_id, at, id) WHERE auth_strategy <> 'api_key';
CREATE INDEX audit_records_rare_service_idx ON audit_records (organization_id, at, id) WHERE service <> 'api';
