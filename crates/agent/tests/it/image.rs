//! The agent's image has what an agent in it needs beside its program.

use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, crypto};
use serde_json::Value;
use testkit::shell;

/// EC2 and etcd are reached by https, and a container sees nothing of its node's files.
#[test]
fn the_image_has_the_authorities_of_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    // What the program does is of no matter here.
    shell(&format!("cp /bin/true {at}/hostgap; cp /bin/true {at}/hostgap-cni"));
    let archive =
        cluster::write_agent_image(&folder.path().join("hostgap"), &["hostgap.test/agent:1"], folder.path());
    let archive = archive.unwrap().display().to_string();
    shell(&format!("cd {at} && tar -xf {archive} && mkdir root && tar -xf layer.tar -C root"));
    let config: Value =
        serde_json::from_slice(&fs::read(folder.path().join("config.json")).unwrap()).unwrap();
    let variables = config["config"]["Env"].as_array().unwrap().iter().filter_map(Value::as_str);
    let file = variables.filter_map(|variable| variable.strip_prefix("SSL_CERT_FILE=/")).next().unwrap();
    let found = CertificateDer::pem_file_iter(folder.path().join("root").join(Path::new(file))).unwrap();
    let mut authorities = RootCertStore::empty();
    let (taken, _) = authorities.add_parsable_certificates(found.map(Result::unwrap));
    assert!(taken > 0, "{file}");
    let provider = crypto::ring::default_provider();
    let client =
        ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions().unwrap();
    client.with_root_certificates(authorities).with_no_client_auth();
}
