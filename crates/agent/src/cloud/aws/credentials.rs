//! The keys that sign calls: those of the environment, or those of the instance's role, which expire.

use std::fmt;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use super::super::CloudError;
use super::http::Client;
use super::metadata::Metadata;

/// The role of an instance, and below it the keys.
const ROLE: &str = "iam/security-credentials/";
/// Keys that end are replaced so long before. The service has new ones five minutes before the old ones end.
const MARGIN: Duration = Duration::from_secs(240);

/// Keys of an account or a role. They are in no log: [`fmt::Debug`] says nothing of them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    /// What keys of a role come with.
    pub(super) token: Option<String>,
}

/// Keys, and until when they are good.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) keys: Keys,
    end: Option<SystemTime>,
}

/// What the metadata service says of a role.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleAnswer {
    code: String,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
    expiration: Option<Timestamp>,
}

impl Keys {
    pub(super) fn new(id: &str, secret: &str) -> Keys {
        Keys { id: id.to_owned(), secret: secret.to_owned(), token: None }
    }

    /// Those of the environment, if it has both.
    pub(super) fn read(first: &impl Fn(&[&str]) -> Option<String>) -> Option<Keys> {
        let (id, secret) = (first(&["AWS_ACCESS_KEY_ID"])?, first(&["AWS_SECRET_ACCESS_KEY"])?);
        Some(Keys { id, secret, token: first(&["AWS_SESSION_TOKEN"]) })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Credentials {
    /// Keys that do not end.
    pub(super) fn lasting(keys: Keys) -> Credentials {
        Credentials { keys, end: None }
    }

    /// Whether they are good for some time after a moment.
    pub(super) fn last_until(&self, now: SystemTime) -> bool {
        self.end.is_none_or(|end| now + MARGIN < end)
    }
}

/// The keys of the instance's role.
pub(super) async fn of_role(metadata: &Metadata, http: &mut Client) -> Result<Credentials, CloudError> {
    let role = metadata.find(http, ROLE).await?;
    let role = role.as_deref().and_then(|roles| roles.lines().next()).filter(|role| !role.is_empty());
    let Some(role) = role else {
        return Err(CloudError::Credentials(
            "the environment has no keys, and this instance has no role".to_owned(),
        ));
    };
    let answer = metadata.ask(http, &format!("{ROLE}{role}")).await?;
    read(role, &answer).map_err(CloudError::Credentials)
}

fn read(role: &str, answer: &str) -> Result<Credentials, String> {
    // No word of the answer is repeated: it has secrets.
    let answer: RoleAnswer = serde_json::from_str(answer)
        .map_err(|_| format!("the metadata service's answer for role {role} is malformed"))?;
    match answer {
        RoleAnswer { code, access_key_id: Some(id), secret_access_key: Some(secret), token, expiration }
            if code == "Success" =>
        {
            Ok(Credentials { keys: Keys { id, secret, token }, end: expiration.map(SystemTime::from) })
        }
        RoleAnswer { code, .. } => Err(format!("the metadata service says of role {role}: {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{ "Code": "Success", "LastUpdated": "2026-01-01T00:00:00Z", "Type": "AWS-HMAC",
        "AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "hush", "Token": "long", "Expiration": "2026-01-01T06:00:00Z" }"#;

    #[test]
    fn keys_of_a_role_are_replaced_before_they_end() {
        let found = read("node", ANSWER).unwrap();
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_247_200);
        assert_eq!(found.keys, Keys { token: Some("long".to_owned()), ..Keys::new("ASIAEXAMPLE", "hush") });
        assert!(found.last_until(end - MARGIN - Duration::from_secs(1)));
        assert!(!found.last_until(end - MARGIN));
        assert!(Credentials::lasting(found.keys).last_until(end));
    }

    #[test]
    fn secrets_are_in_no_text() {
        let Credentials { keys, .. } = read("node", ANSWER).unwrap();
        assert_eq!(format!("{keys:?}"), "Keys");
        let damaged = ANSWER.replace("\"Token\": \"long\"", "\"Token\": 7");
        let why = read("node", &damaged).err().unwrap();
        assert!(!why.contains("hush") && why.contains("role node"), "{why}");
        let why = read("node", r#"{ "Code": "AssumeRoleUnauthorizedAccess" }"#).err().unwrap();
        assert!(why.ends_with("role node: AssumeRoleUnauthorizedAccess"), "{why}");
    }
}
