//! Images of containers, made of programs of this machine, in the form of `docker save`, which `docker load` and
//! containerd's `ctr images import` take. There is no registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{Cluster, NODES, Programs, run};

/// The name of an image with busybox. A container of it sleeps if it is not given another command, so that it can hold
/// the namespaces of a pod, too.
pub const IMAGE: &str = "hostgap.test/busybox:1";

/// The name of the agent's image, as in `deploy/agent/daemonset.yaml`.
pub const AGENT_IMAGE: &str = "localhost/hostgap:latest";

/// An image, and how it is made.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    /// Its names, as pods give them.
    names: &'a [&'a str],
    /// The name of its archive.
    archive: &'static str,
    entrypoint: &'static [&'static str],
    command: &'static [&'static str],
    /// What its programs find in their environment beside `PATH`.
    environment: &'static [&'static str],
    /// A program to be in it, `$PROGRAM` of the script.
    program: Option<&'a Path>,
    /// A shell script that fills the directory `root`, which becomes the image's.
    script: &'static str,
}

pub(crate) const BUSYBOX: Image<'static> = Image {
    names: &[IMAGE],
    archive: "busybox.tar",
    entrypoint: &["/bin/sleep", "2147483647"],
    command: &[],
    environment: &[],
    program: None,
    script: "
        mkdir root/www
        all_of_busybox",
};

/// The image in which Kubernetes' own tests and cyclonus run, by the names that those of the versions in
/// `kubernetes/go.mod` and `addons/go.mod` have for it. The tests rely on dash, curl and the netcat of OpenBSD.
pub(crate) const AGNHOST: Image<'static> = Image {
    names: &[
        "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
        "registry.k8s.io/e2e-test-images/agnhost:2.43",
    ],
    archive: "agnhost.tar",
    entrypoint: &["/agnhost"],
    command: &["pause"],
    environment: &[],
    program: None,
    script: "
        all_of_busybox
        rm root/bin/sh root/bin/nc
        put /bin/dash sh
        put \"$(command -v curl)\" curl
        put \"$(command -v nc.openbsd)\" nc
        cp \"$(command -v agnhost)\" root/agnhost",
};

/// A CoreDNS, by the name that `names.yaml` has for it.
pub(crate) const COREDNS: Image<'static> = Image {
    names: &["hostgap.test/coredns:1"],
    archive: "coredns.tar",
    entrypoint: &["/bin/coredns"],
    command: &[],
    environment: &[],
    program: None,
    script: "cp \"$(command -v coredns)\" root/bin/coredns",
};

/// The agent's image. An agent that installs the plugin asks the kernel for nftables by `nft`; on the node
/// itself the plugin takes the node's own. By the certificate authorities, those of this machine, it knows a
/// cloud's API and an etcd.
fn agent<'a>(program: &'a Path, names: &'a [&'a str]) -> Image<'a> {
    Image {
        names,
        archive: "hostgap.tar",
        entrypoint: &["/bin/hostgap"],
        command: &[],
        environment: &["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
        program: Some(program),
        script: "
        put_authorities
        put \"$PROGRAM\" hostgap
        put \"$PROGRAM-cni\" hostgap-cni
        strip root/bin/hostgap root/bin/hostgap-cni
        put \"$(command -v nft)\" nft",
    }
}

/// How `tar` makes the same archive of the same files, whoever owns them and whenever they were copied.
const REPEATABLE: &str =
    "--format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@0";

/// What the scripts call: `all_of_busybox` puts it into the image with links of all its names, `put` a
/// program with its libraries, `put_authorities` the file by which programs check certificates: it has
/// another place in each distribution.
const FUNCTIONS: &str = "
    all_of_busybox() {
        cp \"$(command -v busybox)\" root/bin/busybox
        for applet in $(root/bin/busybox --list); do
            [ -e root/bin/$applet ] || ln -s busybox root/bin/$applet
        done
    }
    put() {
        cp --dereference \"$1\" root/bin/$2
        for library in $(ldd \"$1\" | grep --only-matching '/[^ ]*'); do
            mkdir -p root/${library%/*}
            cp --dereference $library root/$library
        done
    }
    put_authorities() {
        for bundle in \"${SSL_CERT_FILE:-}\" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
                /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
            if [ -s \"$bundle\" ]; then
                mkdir -p root/etc/ssl/certs
                cp --dereference \"$bundle\" root/etc/ssl/certs/ca-certificates.crt
                return
            fi
        done
        echo 'this machine has no certificate authorities (package ca-certificates)' >&2
        return 1
    }
    for directory in bin dev etc proc sys tmp; do mkdir -p root/$directory; done";

/// Writes the archive of the agent's image into a folder, with a build of `hostgap`, `hostgap-cni` beside it and the
/// libraries that they need, and returns its path. The image has all of the names. The same programs and files of this
/// machine make the same bytes.
///
/// # Errors
/// Something that the image is made with or of is missing (`nft`, `strip`, `tar`, certificate authorities), or the
/// folder cannot be written.
pub fn write_agent_image(program: &Path, names: &[&str], folder: &Path) -> Result<PathBuf> {
    let image = agent(program, names);
    write(&image, folder, &Programs::of_this_machine()?)?;
    Ok(folder.join(image.archive))
}

/// Writes an image's archive into a folder.
pub(crate) fn write(image: &Image<'_>, folder: &Path, programs: &Programs) -> Result<()> {
    let work = folder.join("image");
    let pack =
        format!("tar --create {REPEATABLE} --file layer.tar --directory root . && sha256sum layer.tar");
    fs::create_dir_all(&work).with_context(|| format!("could not make {}", work.display()))?;
    let mut layer = Command::new("sh");
    let script = format!("{FUNCTIONS}\n{}\n{pack}", image.script);
    layer.args(["-euc", &script]).current_dir(&work).env("PATH", programs.path());
    layer.env("PROGRAM", image.program.unwrap_or(Path::new("")));
    let sum = run(&mut layer)?;
    let sum = sum.split_whitespace().next().context("sha256sum printed nothing")?.to_owned();
    for (name, text) in [("config.json", image.config(&sum)), ("manifest.json", image.manifest())] {
        fs::write(work.join(name), text.to_string()).with_context(|| format!("could not write {name}"))?;
    }
    let mut archive = Command::new("tar");
    archive.arg("--create").args(REPEATABLE.split(' ')).arg("--file").arg(folder.join(image.archive));
    run(archive.args(["manifest.json", "config.json", "layer.tar"]).current_dir(&work))?;
    fs::remove_dir_all(&work).context("could not remove what the image was made of")
}

impl Cluster {
    /// Writes an image's archive, and gives it to the containerd of each node, unless this cluster's nodes have it.
    pub(crate) fn provide(&self, image: &Image<'_>) -> Result<()> {
        let archive = self.folder.join(image.archive);
        let given = archive.with_extension("given");
        if given.exists() {
            return Ok(());
        }
        write(image, &self.folder, &self.programs)?;
        self.import(&archive)?;
        fs::write(&given, "").with_context(|| format!("could not write {}", given.display()))
    }

    /// Gives an image to the containerd of each node.
    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        for node in NODES {
            let mut import = self.on(node, "ctr");
            run(import.args(["--namespace", "k8s.io", "images", "import"]).arg(archive))?;
        }
        Ok(())
    }
}

/// As images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Image<'_> {
    fn config(&self, layer_sha256: &str) -> Value {
        let environment: Vec<&str> = ["PATH=/bin"].iter().chain(self.environment).copied().collect();
        json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": self.entrypoint, "Cmd": self.command, "Env": environment },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_sha256}")] },
        })
    }

    fn manifest(&self) -> Value {
        json!([{ "Config": "config.json", "RepoTags": self.names, "Layers": ["layer.tar"] }])
    }
}
