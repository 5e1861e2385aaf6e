//! The handlers that create, delete and move files, and set permissions.

use casement_domain::fs::{NewDirectory, NewMove, NewPermissions};
use serde::Deserialize;

use crate::{
    answer::{self, Answer},
    request::{ActiveSession, Request},
    schema::ToSchema,
};

/// Permissions to set. A symbolic link is followed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SetFilePermissions)]
pub(crate) struct SetPermissions {
    /// An absolute path. Required.
    #[schema(required, nullable = false)]
    path: Option<String>,
    /// Three or four octal digits, such as `644`, without the set-user-ID and the set-group-ID bit. Required.
    #[schema(required, nullable = false)]
    mode: Option<String>,
    /// The name or number of a user. Default: unchanged.
    owner: Option<String>,
    /// The name or number of a group. Default: unchanged.
    group: Option<String>,
}

pub(crate) async fn set_file_permissions(mut request: Request<ActiveSession>) -> Answer {
    let SetPermissions { path, mode, owner, group } = request.json().await?;
    let permissions = NewPermissions::parse(path, mode, owner, group)?;
    request.services().files.set_permissions(request.session(), permissions).await?;
    Ok(answer::nothing())
}

/// A directory to create.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CreateDirectory {
    /// An absolute path. Required.
    #[schema(required, nullable = false)]
    path: Option<String>,
    /// Three or four octal digits. Default: `755`.
    mode: Option<String>,
}

pub(crate) async fn create_directory(mut request: Request<ActiveSession>) -> Answer {
    let CreateDirectory { path, mode } = request.json().await?;
    request.services().files.make_directory(request.session(), NewDirectory::parse(path, mode)?).await?;
    Ok(answer::nothing())
}

/// The path of a file or directory.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = PathOfFile)]
pub(crate) struct OnePath {
    /// An absolute path. Required.
    #[schema(required, nullable = false)]
    path: Option<String>,
}

pub(crate) async fn delete_directory(mut request: Request<ActiveSession>) -> Answer {
    let OnePath { path } = request.json().await?;
    request.services().files.delete_directory(request.session(), path).await?;
    Ok(answer::nothing())
}

pub(crate) async fn delete_file(mut request: Request<ActiveSession>) -> Answer {
    let OnePath { path } = request.json().await?;
    request.services().files.delete_file(request.session(), path).await?;
    Ok(answer::nothing())
}

/// A file or directory to move.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MovePath {
    /// The present absolute path. Required.
    #[schema(required, nullable = false)]
    src_path: Option<String>,
    /// The new absolute path, which must not exist. Required.
    #[schema(required, nullable = false)]
    dest_path: Option<String>,
}

pub(crate) async fn move_path(mut request: Request<ActiveSession>) -> Answer {
    let MovePath { src_path, dest_path } = request.json().await?;
    request.services().files.relocate(request.session(), NewMove::parse(src_path, dest_path)?).await?;
    Ok(answer::nothing())
}
