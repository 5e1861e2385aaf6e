//! The row of a deployment.

use casement_domain::deployment::{
    BuildLease, Deployment, DeploymentSource, DeploymentStatus, Entrypoint, PackagePath,
};
use casement_domain::{ApiKeyId, DeploymentId, NodeId, ProjectId};
use diesel::prelude::*;
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::convert::{by_text, int, number, ulid, unreadable, uuid};
use crate::error::BadRow;
use crate::schema::deployments;

/// Nothing happens to these any more.
pub(crate) const ENDED: [&str; 2] = [DeploymentStatus::Failed.as_str(), DeploymentStatus::Stopped.as_str()];
/// These are built, or wait to be.
pub(crate) const UNBUILT: [&str; 2] = [DeploymentStatus::Queued.as_str(), DeploymentStatus::InProgress.as_str()];

#[derive(Debug, Queryable, Selectable, Insertable)]
#[diesel(table_name = deployments, check_for_backend(diesel::pg::Pg))]
pub(super) struct DeploymentRow {
    id: Uuid,
    project_id: Uuid,
    status: String,
    status_reason: Option<String>,
    region: String,
    version: String,
    force: bool,
    entrypoint: String,
    source_url: Option<String>,
    source_ref: Option<String>,
    source_path: Option<String>,
    source_checksum: Option<String>,
    env_names: Vec<String>,
    api_key_id: Uuid,
    artifact: Option<String>,
    lease_holder: Option<Uuid>,
    lease_number: Option<i32>,
    lease_expires_at: Option<OffsetDateTime>,
    begun_at: Option<OffsetDateTime>,
    created_at: OffsetDateTime,
    updated_at: OffsetDateTime,
}

/// What a move changes; what is nothing becomes nothing.
#[derive(AsChangeset)]
#[diesel(table_name = deployments, treat_none_as_null = true)]
pub(super) struct Moved {
    status: &'static str,
    status_reason: Option<String>,
    source_checksum: Option<String>,
    artifact: Option<String>,
    lease_holder: Option<Uuid>,
    lease_number: Option<i32>,
    lease_expires_at: Option<OffsetDateTime>,
    begun_at: Option<OffsetDateTime>,
    updated_at: OffsetDateTime,
}

impl From<&Deployment> for Moved {
    fn from(next: &Deployment) -> Self {
        Self {
            status: next.status.as_str(),
            status_reason: next.status_reason.clone(),
            source_checksum: next.source_checksum.clone(),
            artifact: next.artifact.clone(),
            lease_holder: next.lease.map(|lease| uuid(lease.node.ulid())),
            lease_number: next.lease.map(|lease| int(lease.number)),
            lease_expires_at: next.lease.map(|lease| lease.expires_at),
            begun_at: next.begun_at,
            updated_at: next.updated_at,
        }
    }
}

impl From<&Deployment> for DeploymentRow {
    fn from(one: &Deployment) -> Self {
        let (url, git_ref, path) = match &one.source {
            DeploymentSource::File => (None, None, None),
            DeploymentSource::Git { url, git_ref, path } => {
                (Some(url.to_string()), Some(git_ref.clone()), path.as_ref().map(ToString::to_string))
            }
        };
        let moved = Moved::from(one);
        Self {
            id: uuid(one.id.ulid()),
            project_id: uuid(one.project.ulid()),
            status: moved.status.to_owned(),
            status_reason: moved.status_reason,
            region: one.region.clone(),
            version: one.version.clone(),
            force: one.force,
            entrypoint: one.entrypoint.path().to_string(),
            source_url: url,
            source_ref: git_ref,
            source_path: path,
            source_checksum: moved.source_checksum,
            env_names: one.env_names.iter().cloned().collect(),
            api_key_id: uuid(one.api_key.ulid()),
            artifact: moved.artifact,
            lease_holder: moved.lease_holder,
            lease_number: moved.lease_number,
            lease_expires_at: moved.lease_expires_at,
            begun_at: moved.begun_at,
            created_at: one.created_at,
            updated_at: one.updated_at,
        }
    }
}

fn path(column: &'static str, text: &str) -> Result<PackagePath, BadRow> {
    PackagePath::parse(text).map_err(|bad| unreadable(column, &bad))
}

impl TryFrom<DeploymentRow> for Deployment {
    type Error = BadRow;

    fn try_from(row: DeploymentRow) -> Result<Self, BadRow> {
        let source = match (row.source_url, row.source_ref) {
            (Some(url), Some(git_ref)) => DeploymentSource::Git {
                url: Url::parse(&url).map_err(|error| BadRow::new("source_url", error))?,
                git_ref,
                path: row.source_path.map(|text| path("source_path", &text)).transpose()?,
            },
            _ => DeploymentSource::File,
        };
        let lease = match (row.lease_holder, row.lease_number, row.lease_expires_at) {
            (Some(node), Some(text), Some(expires_at)) => Some(BuildLease {
                node: NodeId::from_ulid(ulid(node)),
                number: number("lease_number", text)?,
                expires_at,
            }),
            _ => None,
        };
        let entrypoint = Entrypoint::at(path("entrypoint", &row.entrypoint)?);
        Ok(Self {
            id: DeploymentId::from_ulid(ulid(row.id)),
            project: ProjectId::from_ulid(ulid(row.project_id)),
            status: by_text("deployments.status", &DeploymentStatus::ALL, DeploymentStatus::as_str, row.status)?,
            status_reason: row.status_reason,
            region: row.region,
            version: row.version,
            force: row.force,
            entrypoint: entrypoint.map_err(|error| BadRow::new("entrypoint", error))?,
            source,
            source_checksum: row.source_checksum,
            env_names: row.env_names.into_iter().collect(),
            api_key: ApiKeyId::from_ulid(ulid(row.api_key_id)),
            artifact: row.artifact,
            lease,
            begun_at: row.begun_at,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}
