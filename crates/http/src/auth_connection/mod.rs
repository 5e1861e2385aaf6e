//! `/auth/connections`. What a login is given comes in and never goes out.

mod handlers;
mod input;
mod record;
mod stream;

pub(crate) use handlers::Accepted as Submitted;
pub(crate) use handlers::{
    __path_create_auth_connection, __path_delete_auth_connection, __path_get_auth_connection,
    __path_list_auth_connection_timeline, __path_list_auth_connections, __path_login_auth_connection,
    __path_submit_auth_connection, __path_update_auth_connection, create_auth_connection, delete_auth_connection,
    get_auth_connection, list_auth_connection_timeline, list_auth_connections, login_auth_connection,
    submit_auth_connection, update_auth_connection,
};
pub(crate) use input::SubmitBody;
pub(crate) use record::live_view_url;
pub(crate) use stream::{__path_follow_auth_connection, follow_auth_connection};
