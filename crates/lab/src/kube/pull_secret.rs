//! The Secret with which nodes pull the image of a race's pods from a private registry.
//!
//! Pods use Secrets of their own namespace alone. Where the race makes that, it takes a copy of one along, which goes
//! with the namespace.

use serde_json::{Value, json};

use super::kubectl::Kubectl;
use super::manifests::Manifests;
use crate::LabError;

/// A Secret for a private registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullSecret {
    /// Its name in the namespace of the pods.
    pub name: String,
    /// The namespace from which it is copied; `None`: it is in that of the pods.
    pub copied_from: Option<String>,
}

/// What a kubelet takes for a registry (`SecretTypeDockercfg` and `SecretTypeDockerConfigJson` in
/// k8s.io/api/core/v1).
const TYPES: [&str; 2] = ["kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"];

impl PullSecret {
    /// As users name it: NAME in the namespace that is used, if one is, or NAMESPACE/NAME.
    ///
    /// # Errors
    /// It is no such name, or pods would not find it; in words.
    pub fn read(text: &str, used: Option<&str>) -> Result<PullSecret, String> {
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let is_name = |name: &str| {
            let sound =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
            !name.is_empty() && name.bytes().all(sound) && !name.starts_with('-')
        };
        if !is_name(name) || !namespace.is_none_or(is_name) {
            return Err("NAME or NAMESPACE/NAME of a Secret is expected".to_owned());
        }
        let secret = |copied_from: Option<&str>| PullSecret {
            name: name.to_owned(),
            copied_from: copied_from.map(str::to_owned),
        };
        match (namespace, used) {
            (Some(namespace), None) => Ok(secret(Some(namespace))),
            (None, Some(_)) => Ok(secret(None)),
            (Some(namespace), Some(used)) if namespace == used => Ok(secret(None)),
            (Some(_), Some(used)) => Err(format!(
                "pods in namespace {used} use its own Secrets; name one of these, without a slash"
            )),
            (None, None) => Err(format!(
                "a namespace that is made has no Secret yet; NAMESPACE/{name} has one copied into it, and --namespace names \
                 one that is there"
            )),
        }
    }

    /// The copy for the namespace that a race makes; `None`: none is needed.
    ///
    /// # Errors
    /// [`LabError::Machine`]: there is no such Secret, or it is none for a registry; or it cannot
    /// be read, and why in the cluster's words.
    pub(super) fn copied(
        &self,
        kubectl: &Kubectl,
        manifests: &Manifests<'_>,
    ) -> Result<Option<Value>, LabError> {
        let Some(from) = &self.copied_from else { return Ok(None) };
        let lacks = |why: String| LabError::not_there(kubectl.cluster(), why);
        let found = kubectl.find(&["secret", &self.name, "--namespace", from]);
        let found = found.map_err(|why| kubectl.failed(why))?;
        let found = found.ok_or_else(|| lacks(format!("there is no Secret {from}/{}", self.name)))?;
        let kind = found["type"].as_str().unwrap_or_default();
        if !TYPES.contains(&kind) {
            let why = format!(
                "Secret {from}/{} is of type {kind:?}, and one for a registry is of {:?}",
                self.name, TYPES[0]
            );
            return Err(lacks(why));
        }
        Ok(Some(self.object(manifests, kind, Some(&found["data"]))))
    }

    /// The same for people who read: without what is secret.
    pub(super) fn shown(&self, manifests: &Manifests<'_>) -> Option<Value> {
        self.copied_from.is_some().then(|| self.object(manifests, TYPES[0], None))
    }

    fn object(&self, manifests: &Manifests<'_>, kind: &str, data: Option<&Value>) -> Value {
        let mut metadata = manifests.named(&self.name);
        let from = self.copied_from.as_deref().unwrap_or_default();
        metadata["annotations"] = json!({ "hostgap/copied-from": format!("{from}/{}", self.name) });
        let mut object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind });
        if let Some(data) = data {
            object["data"] = data.clone();
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_find_a_secret_in_their_own_namespace_or_a_copy_of_it() {
        let read = |text, used| PullSecret::read(text, used).map(|secret| (secret.name, secret.copied_from));
        let named = |from: Option<&str>| Ok(("regcred".to_owned(), from.map(str::to_owned)));
        assert_eq!(read("build/regcred", None), named(Some("build")));
        assert_eq!(read("regcred", Some("race")), named(None));
        assert_eq!(read("race/regcred", Some("race")), named(None));
        let refused = |text, used| read(text, used).unwrap_err();
        assert!(refused("regcred", None).contains("NAMESPACE/regcred has one copied"));
        assert!(refused("build/regcred", Some("race")).contains("use its own Secrets"));
        for text in ["", "/", "a/", "/b", "a/b/c", "--all", "a b", "A"] {
            assert!(refused(text, None).contains("is expected"), "{text}");
        }
    }
}
