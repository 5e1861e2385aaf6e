DROP TABLE app_versions;
DROP TABLE deployment_secrets;
DROP TABLE deployments;
ALTER TABLE api_keys DROP COLUMN for_deployment;
