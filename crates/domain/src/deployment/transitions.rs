//! How a deployment moves from its upload to its end.

use time::OffsetDateTime;

use super::{BuildLease, Deployment, DeploymentStatus};
use crate::ids::DeploymentId;

/// Characters of a reason.
pub(crate) const MAX_REASON: usize = 1000;

/// What can happen to a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentEvent {
    /// A node builds it: one that nobody builds, or whose builder is lost.
    Take(BuildLease),
    /// It is built, and its apps are registered.
    Built {
        /// SHA-256 of the source's archive.
        checksum: String,
        /// What the build left.
        artifact: String,
    },
    /// It cannot be built, or its apps cannot be registered.
    BuildFailed(String),
    /// Its processes cannot be kept up.
    Fell(String),
    /// Somebody stops it.
    Stop,
    /// A later deployment took the place of one of its apps.
    Replaced(DeploymentId),
}

impl DeploymentEvent {
    /// The event's name in tables and errors.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Take(_) => "take",
            Self::Built { .. } => "built",
            Self::BuildFailed(_) => "build failed",
            Self::Fell(_) => "fell",
            Self::Stop => "stop",
            Self::Replaced(_) => "replaced",
        }
    }
}

/// The event is not possible in this state; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deployment {id} is {}, so '{event}' is not possible", status.as_str())]
pub struct DeploymentRefused {
    /// Which deployment.
    pub id: DeploymentId,
    /// Where it stands.
    pub status: DeploymentStatus,
    /// Which event.
    pub event: &'static str,
}

/// The first characters of a reason, without what no store takes.
#[must_use]
pub fn reason(text: &str) -> String {
    text.replace('\0', "\u{fffd}").trim().chars().take(MAX_REASON).collect()
}

impl Deployment {
    /// The deployment after `event`, at `now`; `self` is unchanged.
    ///
    /// # Errors
    /// [`DeploymentRefused`] if the event is not possible in its state.
    pub fn on(&self, event: &DeploymentEvent, now: OffsetDateTime) -> Result<Self, DeploymentRefused> {
        use DeploymentEvent as E;
        use DeploymentStatus::{Failed, InProgress, Queued, Running, Stopped};

        let to = |status, why: Option<String>| Self {
            status,
            status_reason: why.as_deref().map(reason),
            updated_at: now,
            ..self.clone()
        };
        Ok(match (self.status, event) {
            (Queued, E::Take(lease)) => Self { lease: Some(*lease), begun_at: Some(now), ..to(InProgress, None) },
            // A second life of a node knows that the first is over, however fresh its lease is.
            (InProgress, E::Take(lease))
                if self.lease.is_none_or(|held| held.expires_at <= now || held.node == lease.node) =>
            {
                Self { lease: Some(*lease), ..self.clone() }
            }
            (InProgress, E::Built { checksum, artifact }) => {
                Self { source_checksum: Some(checksum.clone()), artifact: Some(artifact.clone()), ..to(Running, None) }
            }
            (Queued | InProgress, E::BuildFailed(why)) | (Running, E::Fell(why)) => to(Failed, Some(why.clone())),
            (Queued | InProgress | Running, E::Stop) => to(Stopped, Some("stopped by request".to_owned())),
            (Running, E::Replaced(by)) => to(Stopped, Some(format!("replaced by deployment {by}"))),
            (Queued, E::Built { .. } | E::Fell(_) | E::Replaced(_))
            | (InProgress, E::Take(_) | E::Fell(_) | E::Replaced(_))
            | (Running, E::Take(_) | E::Built { .. } | E::BuildFailed(_))
            | (Failed | Stopped, _) => {
                return Err(DeploymentRefused { id: self.id, status: self.status, event: event.name() });
            }
        })
    }
}
