//! An etcd that asks for a login.

use std::fs;
use std::path::PathBuf;

use agent::source::etcd::{EtcdSource, Login, Tls};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::scene::{ENDPOINT, Node, ROOT, config, name, node, value, with_bare_etcd, with_etcd};
use testkit::Etcd;

const ENCRYPTED: &str = "https://127.0.0.1:2378";

/// Makes a user `node` with the password `secret` who may do something with the network's keys, and asks for logins
/// from now on.
fn protect(etcd: &Etcd, may: &str) {
    let role = json!({ "name": "nodes", "perm": {
        "permType": may,
        "key": BASE64_STANDARD.encode(format!("{ROOT}/")),
        "range_end": BASE64_STANDARD.encode(format!("{ROOT}0")),
    }});
    etcd.ask("/v3/auth/user/add", &json!({ "name": "root", "password": "r" }));
    etcd.ask("/v3/auth/role/add", &json!({ "name": "root" }));
    etcd.ask("/v3/auth/user/grant", &json!({ "user": "root", "role": "root" }));
    etcd.ask("/v3/auth/user/add", &json!({ "name": "node", "password": "secret" }));
    etcd.ask("/v3/auth/role/add", &json!({ "name": "nodes" }));
    etcd.ask("/v3/auth/role/grant", &role);
    etcd.ask("/v3/auth/user/grant", &json!({ "user": "node", "role": "nodes" }));
    etcd.ask("/v3/auth/enable", &json!({}));
}

fn with(password: &str) -> EtcdSource {
    EtcdSource {
        login: Some(Login { user: "node".to_owned(), password: password.to_owned() }),
        ..EtcdSource::at(vec![ENDPOINT.to_owned()])
    }
}

#[test]
fn a_login_is_proved_and_its_lack_is_said() {
    with_etcd(&config(), async |etcd| {
        protect(etcd, "READWRITE");
        let mut right = Node::start_as(with("secret"), node(1));
        let pods = right.own().await;
        right.until(|seen| seen.unreachable.is_none()).await;
        let mut wrong = Node::start_as(with("guessed"), node(2));
        let refused =
            |why: &String| why.contains("refused the login") && why.contains("invalid user ID or password");
        wrong.until(|seen| seen.unreachable.as_ref().is_some_and(refused)).await;
        let mut anonymous = Node::start(node(3));
        anonymous
            .until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains("user name is empty")))
            .await;
        let mut other = Node::start_as(with("secret"), node(4));
        other.other(&name(&pods)).await.unwrap();
        assert!(!format!("{:?}", with("secret")).contains("secret"));
    });
}

/// It has no prefix, and sees the others all the same.
#[test]
fn a_node_that_may_not_write_sees_the_others() {
    with_etcd(&config(), async |etcd| {
        etcd.put("subnets/10.5.200.0-24", &value(8));
        protect(etcd, "READ");
        let mut reader = Node::start_as(with("secret"), node(2));
        reader.other("10.5.200.0-24").await.unwrap();
        reader
            .until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains("permission denied")))
            .await;
        let root = Login { user: "root".to_owned(), password: "r".to_owned() };
        let mut other = Node::start_as(EtcdSource { login: Some(root), ..with("") }, node(3));
        let third = other.own().await;
        reader.until(|seen| seen.others.contains_key(&name(&third))).await;
        assert!(reader.seen.borrow().own.iter().next().is_none());
    });
}

/// The files of an authority, of etcd and of a node: certificates and keys.
struct Files {
    dir: TempDir,
}

impl Files {
    fn make() -> Files {
        let files = Files { dir: TempDir::new().unwrap() };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        files.write("ca", &authority.pem());
        for (who, names) in [("etcd", vec!["127.0.0.1".to_owned()]), ("node", vec!["node".to_owned()])] {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
            files.write(who, &certificate.pem());
            files.write(&format!("{who}.key"), &key.serialize_pem());
        }
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn certificates_are_shown_and_asked_for() {
    let files = Files::make();
    let path = |name: &str| files.path(name).display().to_string();
    let (ca, certificate, key) = (path("ca"), path("etcd"), path("etcd.key"));
    let urls = format!("{ENDPOINT},{ENCRYPTED}");
    let arguments = ["--listen-client-urls", &urls, "--client-cert-auth", "--trusted-ca-file", &ca];
    let more = ["--cert-file", &certificate, "--key-file", &key];
    let arguments: Vec<String> = arguments.iter().chain(&more).map(ToString::to_string).collect();
    with_bare_etcd(&arguments, async |etcd| {
        etcd.put("config", &config().to_string());
        let with = |tls: Tls| EtcdSource { tls, ..EtcdSource::at(vec![ENCRYPTED.to_owned()]) };
        let identity = Some((files.path("node"), files.path("node.key")));
        let mut known =
            Node::start_as(with(Tls { ca: Some(files.path("ca")), identity: identity.clone() }), node(1));
        known.own().await;
        known.until(|seen| seen.unreachable.is_none()).await;
        // etcd shows a certificate that the machine's authorities do not know.
        let mut trusting = Node::start_as(with(Tls { ca: None, identity }), node(2));
        trusting.until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains("certificate"))).await;
        let mut unknown = Node::start_as(with(Tls { ca: Some(files.path("ca")), identity: None }), node(3));
        unknown.until(|seen| seen.unreachable.is_some()).await;
        let mut without =
            Node::start_as(with(Tls { ca: Some(files.path("no-ca")), identity: None }), node(4));
        let says = |why: &String| why.contains("no-ca cannot be read: No such file");
        without.until(|seen| seen.unreachable.as_ref().is_some_and(says)).await;
    });
}
