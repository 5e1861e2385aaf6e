//! `…/replays`: recordings, and the page that plays one.

mod handlers;
mod page;
mod range;
mod record;

pub(crate) use self::{
    handlers::{
        __path_download_replay, __path_list_replays, __path_start_replay, __path_stop_replay, download_replay,
        list_replays, start_replay, stop_replay, watched_film,
    },
    page::{asset, replay_page},
};
