//! Wires profiles: their rows, their sealed bytes, and how browsers load and save them.

use std::sync::Arc;

use casement_domain::audit::{AuditEntry, AuditService, AuditTrail, AuthStrategy};
use casement_domain::blob::BlobStore;
use casement_domain::profile::{
    ProfileDeps, ProfileReports, ProfileRepository, ProfileVersion, ProfileVersions, Profiles, Saved, SessionProfiles,
};
use casement_domain::session::{PoolWake, Session};
use casement_domain::telemetry::{Event, Recorder};
use casement_domain::{AuditRecordId, Clock as _, ProfileId};
use tracing::{info, warn};

use crate::engines::{BrowserEngines, EngineProfiles};
use crate::system::System;
use casement_sealing::{MasterKeys, SealedStreams};

/// Returns the stored profiles.
pub(crate) fn versions(
    rows: Arc<dyn ProfileRepository>,
    blobs: Arc<dyn BlobStore>,
    keys: &MasterKeys,
) -> ProfileVersions {
    ProfileVersions::new(rows, blobs, Arc::new(SealedStreams::new(keys.clone())), Arc::new(System))
}

/// Returns the use cases.
pub(crate) fn use_cases(versions: ProfileVersions, max_count: u32) -> Profiles {
    Profiles::new(versions, Arc::new(System), Arc::new(System), max_count)
}

/// Returns the use cases of profiles in sessions and pools.
pub(crate) fn of_sessions(
    versions: ProfileVersions,
    engines: &BrowserEngines,
    (trail, recorder): (Arc<dyn AuditTrail>, Arc<dyn Recorder>),
    pools: Arc<dyn PoolWake>,
) -> SessionProfiles {
    let (machine, reports) = (Arc::new(EngineProfiles(engines.clone())), Arc::new(Reports { trail, recorder }));
    SessionProfiles::new(ProfileDeps { stored: versions, machine, reports, pools, ids: Arc::new(System) })
}

/// Reports saved and failed profiles in logs and metrics; an overwritten version also in the audit log and the
/// session's telemetry.
struct Reports {
    trail: Arc<dyn AuditTrail>,
    recorder: Arc<dyn Recorder>,
}

impl ProfileReports for Reports {
    fn saved(&self, session: &Session, version: &ProfileVersion, saved: &Saved) {
        metrics::counter!("casement_profiles_saved_total").increment(1);
        let (session_id, profile) = (session.id, version.profile);
        info!(session = %session_id, %profile, version = %version.id, "saved a session's profile");
        let Some(unseen) = saved.unseen else { return };
        metrics::counter!("casement_profiles_replaced_unseen_total").increment(1);
        warn!(
            session = %session_id, %profile, version = %version.id, replaced = %unseen,
            "a session's profile replaced a version from which the session had not started; the replaced version is kept"
        );
        let replaced = Event::profile_replaced(System.now(), profile, version.id, unseen);
        self.recorder.note_late(session, replaced);
        let record = AuditEntry {
            id: AuditRecordId::mint(&System),
            at: System.now(),
            auth_strategy: AuthStrategy::SessionToken,
            service: AuditService::Session,
            api_key: None,
            project: Some(session.project),
            client_ip: String::new(),
            domain: String::new(),
            method: "SAVE".to_owned(),
            path: format!("/profiles/{profile}/versions/{unseen}"),
            route: "/profiles/{id}/versions/{replaced}".to_owned(),
            status: 409,
            duration_ms: 0,
            user_agent: format!("session {session_id}"),
            request_id: String::new(),
            count: 1,
        };
        self.trail.note(record, None);
    }

    fn late(&self, session: &Session, profile: ProfileId, why: &str) {
        warn!(session = %session.id, %profile, why, "cannot save a session's profile; retrying");
    }

    fn lost(&self, session: &Session, profile: ProfileId, why: &str) {
        metrics::counter!("casement_profiles_not_saved_total").increment(1);
        warn!(session = %session.id, %profile, why, "a session's profile was not saved");
    }
}
