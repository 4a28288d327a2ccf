# What people type. The work is in cargo, xtask and scripts/; this names it.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# Where cargo puts what it builds.
TARGET ?= $(or $(CARGO_TARGET_DIR),target)
HOSTGAP = $(TARGET)/release/hostgap
# What starts it, where it is for another machine.
RUNNER ?=
# The plugins with which tests race; one of them stands for the package, which puts them into no PATH.
CNI = /usr/lib/cni/bridge=containernetworking-plugins
# What programs use RDMA devices by, with its part for those of software; neither is in a PATH.
VERBS = /etc/libibverbs.d/rxe.driver=ibverbs-providers
# How long `make fuzz` runs.
FUZZ_SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help race build test vm-test fuzz suites lint docs bench ci install put clean

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf 'make %-8s  %s\n' "$$name" "$$text"; done

race: build ## build, and race the data paths that can run here (two to three minutes; needs root)
	@scripts/need-root 'make race'
	@scripts/need nft=nftables
	@# Without nginx the race goes on with a responder of its own, and says so.
	@if nginx=$$(scripts/fetch-nginx); then HOSTGAP_NGINX=$$nginx; export HOSTGAP_NGINX; fi; exec $(HOSTGAP) race

build: ## build the program
	@scripts/need-rust
	$(CARGO) build --release --locked --package hostgap

test: ## run all tests, natively and on Debian kernels in QEMU (needs root)
	@scripts/need-root 'make test'
	@scripts/need-rust
	@scripts/need nft=nftables ip=iproute2 wrk=wrk curl=curl c++=g++ ab=apache2-utils \
		iptables=iptables ethtool=ethtool iperf3=iperf3 dnsmasq=dnsmasq-base sockperf=sockperf openssl=openssl ssh=openssh-client nc.openbsd=netcat-openbsd man=man-db $(CNI) $(VERBS)
	@# Without Kubernetes or flanneld (there is no Go, or it does not build) the tests that need it are skipped, and the summary
	@# says so.
	@if kubernetes=$$(scripts/build-kubernetes); then HOSTGAP_KUBERNETES=$$kubernetes; export HOSTGAP_KUBERNETES; fi; \
		if flannel=$$(scripts/build-flannel); then HOSTGAP_FLANNEL=$$flannel; export HOSTGAP_FLANNEL; fi; \
		HOSTGAP_NGINX=$$(scripts/fetch-nginx) && HOSTGAP_CONTAINERD=$$(scripts/fetch-containerd) && \
		HOSTGAP_ETCD=$$(scripts/fetch-etcd) && HOSTGAP_PROXIES=$$(scripts/fetch-proxies) && \
		HOSTGAP_SSHD=$$(scripts/fetch-sshd) && \
		HOSTGAP_OVS=$$(scripts/fetch-ovs) && HOSTGAP_OVS_DPDK=$$(scripts/fetch-ovs-dpdk) && \
		HOSTGAP_ROOTLESS=$$(scripts/fetch-rootless) && PATH=$$PATH:$$HOSTGAP_OVS:$$HOSTGAP_OVS_DPDK:$$HOSTGAP_ROOTLESS && \
		export HOSTGAP_NGINX HOSTGAP_CONTAINERD HOSTGAP_ETCD HOSTGAP_PROXIES HOSTGAP_SSHD HOSTGAP_OVS HOSTGAP_OVS_DPDK HOSTGAP_ROOTLESS && \
		exec $(CARGO) xtask test

vm-test: ## run the tests of namespaces on Debian kernels in QEMU alone (needs root)
	@scripts/need-root 'make vm-test'
	@scripts/need-rust
	@scripts/need nft=nftables ip=iproute2 curl=curl ethtool=ethtool $(CNI) $(VERBS)
	@HOSTGAP_NGINX=$$(scripts/fetch-nginx) && HOSTGAP_OVS=$$(scripts/fetch-ovs) && \
		HOSTGAP_ROOTLESS=$$(scripts/fetch-rootless) && export HOSTGAP_NGINX HOSTGAP_OVS HOSTGAP_ROOTLESS && \
		exec $(CARGO) xtask vm-test

fuzz: ## fuzz each parser of foreign bytes for FUZZ_SECONDS (600)
	@scripts/need-rust
	@scripts/need c++=g++
	@$(CARGO) xtask fuzz $(FUZZ_SECONDS)

suites: ## run the CNI project's test suites with this program, and ours under a newer containerd (needs Go, root)
	@scripts/need-root 'make suites'
	@scripts/need-rust
	@scripts/need go=golang ip=iproute2 iptables=iptables
	@$(CARGO) xtask suites

lint: ## format, tidy, clippy, documentation, dependencies
	@scripts/need-rust
	@$(CARGO) xtask lint

docs: ## build the documentation of the code
	@scripts/need-rust
	$(CARGO) doc --workspace --no-deps
	@echo "$(TARGET)/doc/hostgap/index.html"

bench: ## measure the parts of this program against others and against the least they can cost
	@scripts/need-rust
	@# Who is missing is left out, and the bench says so. oha comes by `cargo install oha`.
	-@scripts/need wrk=wrk h2load=nghttp2-client ab=apache2-utils hey=hey
	@if nginx=$$(scripts/fetch-nginx); then HOSTGAP_NGINX=$$nginx; export HOSTGAP_NGINX; fi; \
		exec $(CARGO) bench --workspace --bench '*'

ci: ## what CI runs
	.ci/run

install: build ## install program, manual pages and completions below PREFIX (/usr/local)
	@$(MAKE) --no-print-directory put

# What is installed, of programs that are built already. A release is packed from this list.
put:
	install -D -m 755 $(HOSTGAP) "$(DESTDIR)$(PREFIX)/bin/hostgap"
	install -D -m 755 $(HOSTGAP)-cni "$(DESTDIR)$(PREFIX)/bin/hostgap-cni"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/man/man1"
	$(RUNNER) $(HOSTGAP) man "$(DESTDIR)$(PREFIX)/share/man/man1"
	mkdir -p "$(DESTDIR)$(PREFIX)/share/bash-completion/completions" \
		"$(DESTDIR)$(PREFIX)/share/zsh/site-functions" "$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d"
	$(RUNNER) $(HOSTGAP) completions bash >"$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hostgap"
	$(RUNNER) $(HOSTGAP) completions zsh >"$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hostgap"
	$(RUNNER) $(HOSTGAP) completions fish >"$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hostgap.fish"

clean: ## remove what was built (the cache in ~/.cache/hostgap stays)
	$(CARGO) clean
