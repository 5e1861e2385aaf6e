//! Making, deleting, moving, permissions.

use casement_domain::fs::{NewDirectory, NewMove, NewPermissions};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    request::{ActiveSession, Request},
};

/// Permissions to set; a link is followed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SetFilePermissions)]
pub(crate) struct SetPermissions {
    /// Absolute. Required.
    #[schema(required, nullable = false)]
    path: Option<String>,
    /// Three or four octal digits: `644`. Required. Without the set-user-ID and the set-group-ID bit.
    #[schema(required, nullable = false)]
    mode: Option<String>,
    /// A name or a number.
    owner: Option<String>,
    /// A name or a number.
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
    /// Absolute. Required.
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

/// A path.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = PathOfFile)]
pub(crate) struct OnePath {
    /// Absolute. Required.
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
    /// Absolute. Required.
    #[schema(required, nullable = false)]
    src_path: Option<String>,
    /// Absolute. Required. Nothing may be there yet.
    #[schema(required, nullable = false)]
    dest_path: Option<String>,
}

pub(crate) async fn move_path(mut request: Request<ActiveSession>) -> Answer {
    let MovePath { src_path, dest_path } = request.json().await?;
    request.services().files.relocate(request.session(), NewMove::parse(src_path, dest_path)?).await?;
    Ok(answer::nothing())
}
