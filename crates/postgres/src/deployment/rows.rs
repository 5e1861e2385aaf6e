//! The row of a deployment.

use casement_domain::deployment::{
    BuildLease, Deployment, DeploymentSource, DeploymentStatus, Entrypoint, PackagePath,
};
use casement_domain::{ApiKeyId, DeploymentId, NodeId, ProjectId};
use diesel::prelude::*;
use time::OffsetDateTime;
use url::Url;

use crate::column::{Column, ColumnValue, Stored, row};
use crate::error::BadRow;
use crate::schema::deployments;

/// The final statuses.
pub(crate) const ENDED: [&str; 2] = [DeploymentStatus::Failed.as_str(), DeploymentStatus::Stopped.as_str()];
/// The statuses of deployments that are being built or wait for it.
pub(crate) const UNBUILT: [&str; 2] = [DeploymentStatus::Queued.as_str(), DeploymentStatus::InProgress.as_str()];

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = deployments, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(super) struct DeploymentRow for Deployment {
        id: Column<DeploymentId>,
        project: Column<ProjectId> as project_id,
        status: Column<DeploymentStatus>,
        status_reason: Option<String>,
        region: String,
        version: String,
        force: bool,
        entrypoint: Column<Entrypoint>,
        #[diesel(embed)]
        source: SourceColumns,
        source_checksum: Option<String>,
        env_names: Vec<String>,
        api_key: Column<ApiKeyId> as api_key_id,
        artifact: Option<String>,
        #[diesel(embed)]
        lease: LeaseColumns,
        begun_at: Option<OffsetDateTime>,
        created_at: OffsetDateTime,
        updated_at: OffsetDateTime,
    }
}

impl ColumnValue for Entrypoint {
    type Raw = String;

    fn to_raw(&self) -> String {
        self.path().to_string()
    }

    fn from_raw(raw: String) -> Result<Self, String> {
        let path = PackagePath::parse(&raw).map_err(|bad| format!("{bad:?}"))?;
        Self::at(path).map_err(|error| error.to_string())
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = deployments, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    /// All `None` for an uploaded file.
    pub(super) struct SourceColumns {
        source_url: Option<Column<Url>>,
        source_ref: Option<String>,
        source_path: Option<Column<PackagePath>>,
    }
}

impl Stored<DeploymentSource> for SourceColumns {
    fn of(source: &DeploymentSource) -> Self {
        match source.clone() {
            DeploymentSource::File => Self { source_url: None, source_ref: None, source_path: None },
            DeploymentSource::Git { url, git_ref, path } => {
                Self { source_url: Some(Column(url)), source_ref: Some(git_ref), source_path: path.map(Column) }
            }
        }
    }

    fn value(self) -> Result<DeploymentSource, BadRow> {
        Ok(match (self.source_url, self.source_ref) {
            (Some(Column(url)), Some(git_ref)) => {
                DeploymentSource::Git { url, git_ref, path: self.source_path.value()? }
            }
            _ => DeploymentSource::File,
        })
    }
}

row! {
    #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
    #[diesel(table_name = deployments, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
    pub(super) struct LeaseColumns {
        lease_holder: Option<Column<NodeId>>,
        lease_number: Option<Column<u32>>,
        lease_expires_at: Option<OffsetDateTime>,
    }
}

impl Stored<Option<BuildLease>> for LeaseColumns {
    fn of(lease: &Option<BuildLease>) -> Self {
        Self {
            lease_holder: lease.map(|lease| Column(lease.node)),
            lease_number: lease.map(|lease| Column(lease.number)),
            lease_expires_at: lease.map(|lease| lease.expires_at),
        }
    }

    fn value(self) -> Result<Option<BuildLease>, BadRow> {
        Ok(match (self.lease_holder, self.lease_number, self.lease_expires_at) {
            (Some(Column(node)), Some(Column(number)), Some(expires_at)) => {
                Some(BuildLease { node, number, expires_at })
            }
            _ => None,
        })
    }
}
