//! Wires the export of audit records to the buckets of the operator.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use casement_blobs::{BucketKeys, BucketSettings, OperatorBuckets};
use casement_domain::NodeId;
use casement_domain::audit::AuditRepository;
use casement_domain::audit_destination::{
    AuditDestinationDeps, AuditDestinationRepository, AuditDestinations, AuditExportOffer,
};
use casement_telemetry::audit::BatchedAuditTrail;
use casement_telemetry::audit_export::{AuditExportDeps, ChangeSignal};

use crate::settings::AuditExportSettings;
use crate::system::System;

/// The variables of the keys, which are those of AWS's own tools.
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";

/// The destinations, and the dependencies of the export to them.
#[derive(Clone)]
pub(crate) struct AuditExport {
    pub(crate) destinations: AuditDestinations,
    pub(crate) deps: AuditExportDeps,
}

impl AuditExport {
    /// Creates the use cases and the export.
    ///
    /// # Errors
    /// If the settings of the operator contradict each other.
    pub(crate) fn new(
        node: NodeId,
        (destinations, records): (Arc<dyn AuditDestinationRepository>, Arc<dyn AuditRepository>),
        trail: &Arc<BatchedAuditTrail>,
        settings: &AuditExportSettings,
    ) -> anyhow::Result<Self> {
        let bucket_settings = bucket_settings(settings)?;
        let offer = bucket_settings.as_ref().map(|offered| AuditExportOffer {
            buckets: offered.buckets.clone(),
            role: settings.audit_export_role.clone(),
        });
        let (buckets, changed) = (Arc::new(OperatorBuckets::new(bucket_settings)?), ChangeSignal::default());
        let use_cases = AuditDestinations::new(AuditDestinationDeps {
            destinations: destinations.clone(),
            buckets: buckets.clone(),
            offer,
            waker: Arc::new(changed.clone()),
            clock: Arc::new(System),
            ids: Arc::new(System),
        });
        let deps = AuditExportDeps {
            node,
            destinations,
            records,
            written: trail.written(),
            trail: trail.clone(),
            buckets,
            write_line: casement_http::write_line,
            clock: Arc::new(System),
            entropy: Arc::new(System),
            changed,
            interval: Duration::from_secs(settings.audit_export_seconds.into()),
        };
        Ok(Self { destinations: use_cases, deps })
    }
}

/// Returns the buckets of the operator; `None` if there are none.
fn bucket_settings(settings: &AuditExportSettings) -> anyhow::Result<Option<BucketSettings>> {
    let AuditExportSettings { audit_export_buckets: buckets, audit_export_endpoint: endpoint, .. } = settings;
    if buckets.is_empty() {
        anyhow::ensure!(endpoint.is_none(), "--audit-export-endpoint: there is no --audit-export-bucket");
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let required = |name: &str| variable(name).with_context(|| format!("--audit-export-bucket: {name} is not set"));
    let keys = BucketKeys {
        id: required(KEY_ID)?,
        secret: required(SECRET_KEY)?.into(),
        token: variable(TOKEN).map(Into::into),
    };
    Ok(Some(BucketSettings { buckets: buckets.clone(), endpoint: endpoint.clone(), keys }))
}
