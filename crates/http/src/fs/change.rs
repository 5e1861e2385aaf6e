//! Making, deleting, moving, permissions.

use casement_domain::fs::{NewDirectory, NewMove, NewPermissions};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::{
    answer::{self, Answer},
    caller::SessionAccess,
    error::ErrorBody,
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

/// Sets permissions of a file or a directory.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/set_file_permissions", tag = "Files",
    params(("id" = String, Path)), request_body = SetPermissions,
    responses(
        (status = 204, description = "Set"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The session's user may not do that", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn set_file_permissions(mut inside: SessionAccess) -> Answer {
    let SetPermissions { path, mode, owner, group } = inside.json().await?;
    let permissions = NewPermissions::parse(path, mode, owner, group)?;
    inside.services().files.set_permissions(&inside.session, permissions).await?;
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

/// Makes a directory, with those above it. One that is there is fine.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/create_directory", tag = "Files",
    params(("id" = String, Path)), request_body = CreateDirectory,
    responses(
        (status = 204, description = "Made"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The session's user may not do that", body = ErrorBody),
        (status = 404, description = "There is no such session", body = ErrorBody),
        (status = 409, description = "There is something else already", body = ErrorBody),
        (status = 429, description = "The session's disk is full", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn create_directory(mut inside: SessionAccess) -> Answer {
    let CreateDirectory { path, mode } = inside.json().await?;
    inside.services().files.make_directory(&inside.session, NewDirectory::parse(path, mode)?).await?;
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

/// Deletes a directory with everything in it.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/delete_directory", tag = "Files",
    params(("id" = String, Path)), request_body = OnePath,
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "The path breaks a rule, or is not a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not do that", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn delete_directory(mut inside: SessionAccess) -> Answer {
    let OnePath { path } = inside.json().await?;
    inside.services().files.delete_directory(&inside.session, path).await?;
    Ok(answer::nothing())
}

/// Deletes a file. A link is deleted itself.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/delete_file", tag = "Files",
    params(("id" = String, Path)), request_body = OnePath,
    responses(
        (status = 204, description = "Deleted"),
        (status = 400, description = "The path breaks a rule, or is a directory", body = ErrorBody),
        (status = 403, description = "The session's user may not do that", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn delete_file(mut inside: SessionAccess) -> Answer {
    let OnePath { path } = inside.json().await?;
    inside.services().files.delete_file(&inside.session, path).await?;
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

/// Moves or renames a file or a directory.
#[utoipa::path(
    put, path = "/browsers/{id}/fs/move", tag = "Files",
    params(("id" = String, Path)), request_body = MovePath,
    responses(
        (status = 204, description = "Moved"),
        (status = 400, description = "A field breaks a rule", body = ErrorBody),
        (status = 403, description = "The session's user may not do that", body = ErrorBody),
        (status = 404, description = "There is no such session or path", body = ErrorBody),
        (status = 409, description = "There is something already", body = ErrorBody),
        (status = 429, description = "The session's disk is full", body = ErrorBody),
        (status = "5XX", description = "The session does not answer", body = ErrorBody),
    )
)]
pub(crate) async fn move_path(mut inside: SessionAccess) -> Answer {
    let MovePath { src_path, dest_path } = inside.json().await?;
    inside.services().files.relocate(&inside.session, NewMove::parse(src_path, dest_path)?).await?;
    Ok(answer::nothing())
}
