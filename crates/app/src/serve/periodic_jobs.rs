//! The table of the jobs that are repeated at an interval, and whose work is one call.

use casement_domain::Clock as _;

use super::background::Jobs;
use super::infrastructure::Infrastructure;
use super::use_cases::UseCases;
use crate::jobs::Periodic;
use crate::system::System;

const MINUTE: u64 = 60;
const HOUR: u64 = 3600;
/// The age from which an unfinished blob is deleted. No upload pauses longer.
const UNFINISHED_MAX_AGE: time::Duration = time::Duration::hours(1);
/// The maximum number of rows that one statement deletes.
const BATCH: u32 = 1000;

impl Jobs<'_> {
    /// Spawns them.
    pub(super) fn periodic(&self, cases: &UseCases) {
        let sessions = self.services.sessions.clone();
        // Ends sessions whose idle timeout is over.
        self.start(Periodic::new("idle sessions", 5, sessions, |sessions, _| async move {
            Ok(sessions.sweep_idle().await?)
        }));
        let leases = self.services.leases.clone();
        // Reconciles leases and tickets whose commit outcome is unknown, when the store answers again.
        self.start(Periodic::new(
            "uncertain writes",
            5,
            leases,
            |leases, _| async move { Ok(leases.reconcile().await?) },
        ));
        let exporter = self.services.destination_exporter.clone();
        // Exports the stored telemetry of lost nodes, on one of the living nodes.
        self.start(Periodic::new("telemetry takeover", MINUTE, exporter, |exporter, _| async move {
            Ok(exporter.take_over().await?)
        }));
        self.retention();
        self.cleanup(cases);
    }

    /// Spawns the jobs that delete records by their age.
    fn retention(&self) {
        let rows = &self.infrastructure.rows;
        let days = |days: u32| time::Duration::days(days.into());
        let (audit, telemetry) = (days(self.settings.audit_days), days(self.settings.telemetry_days));
        // These two also make partitions ahead of time.
        self.start(Periodic::new("audit retention", HOUR, rows.audit.clone(), move |rows, _| async move {
            let now = System.now();
            Ok(rows.tidy(now, now - audit).await?)
        }));
        self.start(Periodic::new("telemetry retention", HOUR, rows.telemetry.clone(), move |rows, _| async move {
            let now = System.now();
            Ok(rows.tidy(now, now - telemetry).await?)
        }));
        let age = days(self.settings.session_days);
        self.start(Periodic::new("session retention", HOUR, rows.sessions.clone(), move |rows, stop| async move {
            let before = System.now() - age;
            while rows.forget(before, BATCH).await? > 0 && !stop.is_cancelled() {}
            Ok(())
        }));
        let age = days(self.settings.deleted_days);
        let resources = rows.deleted_resources.clone();
        self.start(Periodic::new("retention of deleted resources", HOUR, resources, move |rows, stop| async move {
            let before = System.now() - age;
            while rows.forget(before, BATCH).await? > 0 && !stop.is_cancelled() {}
            Ok(())
        }));
    }

    /// Spawns the jobs that delete what nothing refers to any more.
    fn cleanup(&self, cases: &UseCases) {
        let Infrastructure { blobs, replays, .. } = self.infrastructure;
        let age = time::Duration::days(self.settings.login_days.into());
        self.start(Periodic::new("login retention", HOUR, cases.logins.clone(), move |logins, _| async move {
            Ok(logins.forget(age).await?)
        }));
        // Deletes replays that are too old or over the storage limit.
        self.start(Periodic::new("replay cleanup", 10 * MINUTE, replays.clone(), |replays, _| async move {
            Ok(replays.clear().await?)
        }));
        // A killed server can leave bytes of extensions without a row.
        self.start(Periodic::new("extension cleanup", HOUR, cases.extensions.clone(), |extensions, _| async move {
            Ok(extensions.clear_orphans().await?)
        }));
        let parts = (cases.profiles.clone(), blobs.clone());
        self.start(Periodic::new("profile cleanup", 10 * MINUTE, parts, |(profiles, blobs), _| async move {
            profiles.clear().await?;
            blobs.clear_unfinished(UNFINISHED_MAX_AGE).await?;
            Ok(())
        }));
    }
}
