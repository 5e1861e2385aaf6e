//! The routes `…/replays`: recordings, and the page that plays a recording.

mod handlers;
mod page;
mod range;
mod record;

pub(crate) use self::{
    handlers::watched_video,
    page::{asset, replay_page},
};
use self::{
    handlers::{DownloadReplayParams, Mp4, RangeHeader, Start},
    record::ReplayBody,
};
use crate::operation::Operations;

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Replays", "The recording does not exist");
    api.post("/browsers/{id_or_name}/replays", "start_replay", handlers::start_replay)
        .summary("Starts to record the display of a session.")
        .body::<Start>()
        .created::<ReplayBody>()
        .refuses([
            ("400", "A field breaks a rule, or needs what no session of this installation has"),
            ("404", "The session does not exist"),
            ("409", "A recording is running"),
            ("429", "The session has as many recordings as it may have, or no disk space for one"),
        ])
        .fails("The recording could not be started");
    api.get("/browsers/{id_or_name}/replays", "list_replays", handlers::list_replays)
        .summary("Lists the recordings of a session, oldest first. The session may have ended.")
        .returns_list::<ReplayBody>()
        .refuses([("404", "The session does not exist")]);
    api.post("/browsers/{id_or_name}/replays/{replay_id}/stop", "stop_replay", handlers::stop_replay)
        .summary("Stops a recording and encodes its video. One that has ended stays as it is.")
        .no_content("Stopped");
    api.get("/browsers/{id_or_name}/replays/{replay_id}", "download_replay", handlers::download_replay)
        .summary("Downloads the video of a recording that has ended: H.264 in MP4. It is stored for a while after the session's end.")
        .query::<DownloadReplayParams>()
        .headers::<RangeHeader>()
        .content::<Mp4>("200", "video/mp4", "The whole video")
        .content::<Mp4>("206", "video/mp4", "The requested part")
        .refuses([
            ("409", "The recording is running or being stored, it failed, or its video is damaged"),
            ("416", "The requested part is outside of the video"),
        ]);
}
