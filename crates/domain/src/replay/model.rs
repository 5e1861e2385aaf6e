//! Recordings and the request to start one.

use time::OffsetDateTime;

use crate::field::{Fields, within};
use crate::ids::ReplayId;
use crate::session_operation::OperationError;
use crate::text_enum::text_enum;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The identifier.
    pub id: ReplayId,
    /// The time of the first frame.
    pub started_at: OffsetDateTime,
    /// The time of the last frame; `None` while the recording runs.
    pub finished_at: Option<OffsetDateTime>,
    /// The state.
    pub state: ReplayState,
    /// The size of the video in bytes: the current size while the recording runs, the saved part if it failed.
    pub size_bytes: u64,
    /// The reason of the end for people: a reached bound or an error. `None` while the recording runs and after a stop.
    pub detail: Option<String>,
}

text_enum! {
    /// The state of a recording. An incomplete recording never counts as finished.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReplayState {
        /// Frames are recorded, or the video is being completed.
        Running => "running",
        /// The video is complete.
        Finished => "finished",
        /// Frames were missed, or the video could not be completed.
        Failed => "failed",
    }
}

/// A recording to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewReplay {
    /// The identifier.
    pub id: ReplayId,
    /// The number of frames per second.
    pub framerate: u32,
    /// The time in seconds after which the recording stops by itself.
    pub max_duration_seconds: u32,
}

impl NewReplay {
    const FRAMERATE: i64 = 10;
    /// The maximum number of frames per second.
    pub const MAX_FRAMERATE: u32 = 60;
    /// The maximum frame rate without a graphics card.
    const DRAWN_FRAMERATE: u32 = 20;
    const DURATION_SECONDS: i64 = 3600;
    /// The longest duration of a recording, in seconds.
    pub const MAX_DURATION_SECONDS: u32 = 21_600;

    /// Checks a recording: 1 to 60 frames per second, default 10, of which more than 20 need a graphics card; 1 to
    /// 21600 seconds, default 3600.
    ///
    /// # Errors
    /// Returns every field out of bounds; [`OperationError::NotSupported`] for more than 20 frames per second or audio.
    pub fn parse(
        id: ReplayId,
        framerate: Option<i64>,
        max_duration_in_seconds: Option<i64>,
        record_audio: bool,
    ) -> Result<Self, OperationError> {
        let mut fields = Fields::new();
        let framerate = within(framerate.unwrap_or(Self::FRAMERATE), 1, Self::MAX_FRAMERATE);
        let framerate = fields.take("framerate", framerate);
        let seconds = max_duration_in_seconds.unwrap_or(Self::DURATION_SECONDS);
        let seconds = fields.take("max_duration_in_seconds", within(seconds, 1, Self::MAX_DURATION_SECONDS));
        let new = fields.finish_with(|| Some(Self { id, framerate: framerate?, max_duration_seconds: seconds? }))?;
        if new.framerate > Self::DRAWN_FRAMERATE {
            let max = Self::DRAWN_FRAMERATE;
            let message = format!("framerate: more than {max} need a graphics card, which no session here has");
            return Err(OperationError::NotSupported(message));
        }
        if record_audio {
            return Err(OperationError::NotSupported("record_audio: sessions here have no sound".to_owned()));
        }
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn parse(framerate: Option<i64>, seconds: Option<i64>, record_audio: bool) -> Result<NewReplay, OperationError> {
        NewReplay::parse(ReplayId::from_ulid(Ulid::nil()), framerate, seconds, record_audio)
    }

    #[test]
    fn defaults_are_ten_frames_a_second_for_an_hour() {
        let new = parse(None, None, false).expect("valid");
        assert_eq!((new.framerate, new.max_duration_seconds), (10, 3600));
    }

    #[test]
    fn every_field_out_of_bounds_is_named() {
        for (framerate, seconds) in [(0, 0), (61, 21_601), (-1, i64::MAX)] {
            let Err(OperationError::Invalid(invalid)) = parse(Some(framerate), Some(seconds), true) else {
                panic!("{framerate} and {seconds} were taken");
            };
            let named: Vec<_> = invalid.fields().iter().map(|error| error.field.as_str()).collect();
            assert_eq!(named, ["framerate", "max_duration_in_seconds"]);
        }
    }

    #[test]
    fn what_needs_a_graphics_card_or_sound_is_not_supported() {
        assert!(parse(Some(20), Some(21_600), false).is_ok());
        assert!(matches!(parse(Some(21), None, false), Err(OperationError::NotSupported(_))));
        assert!(matches!(parse(None, None, true), Err(OperationError::NotSupported(_))));
    }
}
