//! The routes `/audit-logs/export/destinations`: the buckets to which audit records are exported.

use actix_web::http::StatusCode;
use casement_domain::audit_destination::{
    AuditDestination, AuditDestinationRequest, AuditDestinationUpdateRequest, AuditDestinations, BucketFault,
};
use serde::{Deserialize, Serialize};

use crate::{
    answer::{self, Answer, Moment},
    from_fields::from_fields,
    operation::{LIMIT_REACHED, Operations},
    request::{OrganizationKey, Request},
    schema::ToSchema,
};

const PATH: &str = "/audit-logs/export/destinations";
const ONE: &str = "/audit-logs/export/destinations/{id}";

/// A bucket to which the audit records of the organization are exported continuously.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditLogExportDestination)]
pub(crate) struct DestinationBody {
    id: String,
    /// The kind of the store: `s3`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The format of the objects: `jsonl.gz`.
    format: &'static str,
    bucket: String,
    /// The beginning of the names of the objects.
    prefix: String,
    region: String,
    /// The role of the operator's keys, with which objects are written.
    role_arn: String,
    /// The same: no other role is assumed.
    kernel_role_arn: String,
    /// The id: no role is assumed, so that no trust policy needs it.
    external_id: String,
    /// The key with which the store encrypts the objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    kms_key_id: Option<String>,
    /// `active` or `paused`. A new destination is paused. Records of a pause are exported after it.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Moment,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Moment,
    /// The number of failed attempts since the last written object.
    consecutive_failures: u32,
    /// The kind of the last failure. It stays after a success.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_error_at: Option<Moment>,
    /// The last exported record, or the first activation. Not a cursor of other operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exported_cursor: Option<String>,
    /// The time of the last written object.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    last_success_at: Option<Moment>,
    /// After a failure: the time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Moment>,
}

impl DestinationBody {
    fn new(destination: AuditDestination, role: &str) -> Self {
        let cursor = destination.cursor();
        let AuditDestination { id, target, status, created_at, updated_at, health, .. } = destination;
        Self {
            id: id.to_string(),
            kind: "s3",
            format: "jsonl.gz",
            bucket: target.bucket,
            prefix: target.prefix,
            region: target.region,
            role_arn: role.to_owned(),
            kernel_role_arn: role.to_owned(),
            external_id: id.to_string(),
            kms_key_id: target.kms_key_id,
            status: status.as_str(),
            created_at: Moment(created_at),
            updated_at: Moment(updated_at),
            consecutive_failures: health.consecutive_failures,
            last_error: health.last_error,
            last_error_at: health.last_error_at.map(Moment),
            last_exported_cursor: cursor,
            last_success_at: health.last_success_at.map(Moment),
            next_attempt_at: health.next_attempt_at.map(Moment),
        }
    }
}

/// A destination to create.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = CreateAuditLogExportDestination)]
pub(crate) struct DestinationInput {
    /// `s3`. Required.
    #[serde(rename = "type")]
    #[schema(required, nullable = false)]
    kind: Option<String>,
    /// `jsonl.gz`. Required.
    #[schema(required, nullable = false)]
    format: Option<String>,
    /// A bucket that the operator offers. Required.
    #[schema(required, nullable = false)]
    bucket: Option<String>,
    /// The beginning of the names of the objects, such as `audit/casement`; may be empty. Required.
    #[schema(required, nullable = false)]
    prefix: Option<String>,
    /// The region of the bucket, such as `eu-central-1`. Required.
    #[schema(required, nullable = false)]
    region: Option<String>,
    /// The role of the operator's keys. Default: that role; any other is refused.
    role_arn: Option<String>,
    /// The id, the alias or the ARN of the key with which the store encrypts the objects. Default: as the bucket is
    /// configured.
    kms_key_id: Option<String>,
}

/// The changes of a destination; an absent field leaves its value unchanged.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = UpdateAuditLogExportDestination)]
pub(crate) struct DestinationChanges {
    /// A bucket that the operator offers.
    bucket: Option<String>,
    /// The new beginning of the names of the objects.
    prefix: Option<String>,
    /// The new region.
    region: Option<String>,
    /// The role of the operator's keys; any other is refused.
    role_arn: Option<String>,
    /// The new key with which the store encrypts; an empty one removes it.
    kms_key_id: Option<String>,
    /// `active` or `paused`.
    status: Option<String>,
}

from_fields!(DestinationInput => AuditDestinationRequest { kind, format, bucket, prefix, region, role_arn, kms_key_id });
from_fields!(DestinationChanges => AuditDestinationUpdateRequest { bucket, prefix, region, role_arn, kms_key_id, status });

/// The result of writing a small object.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditLogExportDestinationTestResult)]
pub(crate) struct TestBody {
    success: bool,
    /// `complete`, or the stage that failed: `put_object`.
    stage: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<TestError>,
}

/// Why a test failed.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditLogExportDestinationTestError)]
pub(crate) struct TestError {
    /// `put_object_failed`.
    code: &'static str,
    /// A text for people.
    message: String,
}

impl From<Result<(), BucketFault>> for TestBody {
    fn from(written: Result<(), BucketFault>) -> Self {
        match written {
            Ok(()) => Self { success: true, stage: "complete", error: None },
            Err(fault) => {
                let error = TestError { code: "put_object_failed", message: fault.to_string() };
                Self { success: false, stage: "put_object", error: Some(error) }
            }
        }
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Audit export destinations", "The audit export destination does not exist");
    api.post(PATH, "create_audit_destination", create_audit_destination)
        .summary("Creates an audit export destination, which is paused. Activate it with an update, after a test.")
        .body::<DestinationInput>()
        .created::<DestinationBody>()
        .refuses([LIMIT_REACHED]);
    api.get(PATH, "list_audit_destinations", list_audit_destinations)
        .summary("Lists audit export destinations, newest first.")
        .returns_page::<DestinationBody>();
    api.get(ONE, "get_audit_destination", get_audit_destination)
        .summary("Returns an audit export destination with the state of its export.")
        .returns::<DestinationBody>();
    api.patch(ONE, "update_audit_destination", update_audit_destination)
        .summary("Updates, activates or pauses an audit export destination.")
        .description(
            "The export begins with the calls that are answered after the first activation, and continues after a pause where it was. \
             A change makes the next attempt due at once.",
        )
        .body::<DestinationChanges>()
        .returns::<DestinationBody>();
    api.delete(ONE, "delete_audit_destination", delete_audit_destination)
        .summary("Deletes an audit export destination. An object that is being written may still appear.")
        .no_content("Deleted");
    api.post("/audit-logs/export/destinations/{id}/test", "test_audit_destination", test_audit_destination)
        .summary("Writes a small object to an audit export destination and removes it.")
        .description(
            "The object is encrypted as the objects of an export. A bucket that refuses it is a result, not an error.",
        )
        .returns::<TestBody>();
}

fn use_cases(request: &Request<OrganizationKey>) -> &AuditDestinations {
    &request.services().audit_destinations
}

async fn create_audit_destination(mut request: Request<OrganizationKey>) -> Answer {
    let input = request.json::<DestinationInput>().await?.into();
    let created = use_cases(&request).create(request.organization(), input).await?;
    let body = DestinationBody::new(created, use_cases(&request).role());
    Ok(answer::created(&format!("{PATH}/{}", body.id), &body))
}

async fn list_audit_destinations(request: Request<OrganizationKey>) -> Answer {
    let found = use_cases(&request).list(request.organization(), request.page()?).await?;
    let role = use_cases(&request).role();
    Ok(answer::list(&found.map(|one| DestinationBody::new(one, role))))
}

async fn get_audit_destination(request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let found = use_cases(&request).get(request.organization(), &id).await?;
    Ok(answer::record(StatusCode::OK, &DestinationBody::new(found, use_cases(&request).role())))
}

async fn update_audit_destination(mut request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let input = request.json::<DestinationChanges>().await?.into();
    let changed = use_cases(&request).update(request.organization(), &id, input).await?;
    Ok(answer::record(StatusCode::OK, &DestinationBody::new(changed, use_cases(&request).role())))
}

async fn delete_audit_destination(request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    use_cases(&request).delete(request.organization(), &id).await?;
    Ok(answer::nothing())
}

async fn test_audit_destination(request: Request<OrganizationKey>) -> Answer {
    let id = request.path("id")?;
    let written = use_cases(&request).test(request.organization(), &id).await?;
    Ok(answer::record(StatusCode::OK, &TestBody::from(written)))
}
