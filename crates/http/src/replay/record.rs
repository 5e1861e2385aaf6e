//! The record of a recording.

use casement_domain::{
    replay::{Replay, ReplayState},
    session::Session,
};
use serde::Serialize;

use crate::{answer::Moment, schema::ToSchema, session::Urls, state::Api};

/// A recording of a session.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replay)]
pub(crate) struct ReplayBody {
    replay_id: String,
    #[schema(value_type = String, format = DateTime)]
    started_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Moment>,
    /// The URL of a page that plays the recording as long as it is stored.
    replay_view_url: String,
    status: Status,
    /// The size of the video in bytes; it grows while the recording runs.
    size_bytes: u64,
    /// The reason why the recording ended, unless it was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The state of a recording.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ReplayStatus)]
enum Status {
    /// Frames are captured, or the video is being created or stored.
    Running,
    /// The video is complete.
    Finished,
    /// Frames were lost, or the video could not be created or stored.
    Failed,
}

impl ReplayBody {
    pub(super) fn new(api: &Api, session: &Session, replay: Replay) -> Self {
        let id = replay.id.to_string();
        Self {
            replay_view_url: Urls::new(&api.public_url.get(), &api.services.tokens, session).replay(&id),
            replay_id: id,
            started_at: Moment(replay.started_at),
            finished_at: replay.finished_at.map(Moment),
            status: match replay.state {
                ReplayState::Running => Status::Running,
                ReplayState::Finished => Status::Finished,
                ReplayState::Failed => Status::Failed,
            },
            size_bytes: replay.size_bytes,
            detail: replay.detail,
        }
    }
}
