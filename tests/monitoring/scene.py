"""The servers, and each fault as it is injected into one, with the alerts that it must raise."""

import os
import shutil
import subprocess

import peers
import processes
from faults import Fault, Restarts, SlowReader, lasting
from processes import Load, Repeat, Server

MIB = 1 << 20
# A tenth of a second or so on one thread, and few bytes: some dozens are a queue of seconds, and
# some still end in each window of the rules on a machine that has far more to do.
HEAVY = '--shape=forward:f32:s8192:h1:d16'


class Scene:
    """All servers, their ordinary load, and the faults. `build` is the build's folder."""

    def __init__(self, build, folder, prometheus, gpu):
        self.build, self.folder, self.prometheus, self.gpu = build, folder, prometheus, gpu
        self.attnd = build / 'server/attnd'
        self.attnload = build / 'client/attnload/attnload'
        self.faulty = build / 'tests/monitoring/faulty_attnd'
        self.servers, self.loads, self.faults = [], [], []
        self.healthy()
        self.dead()
        self.broken_devices()
        self.too_much()
        self.crowd()
        self.tls()
        self.regions()
        self.strangers_and_the_log()

    # What the scene is made of.

    def server(self, name, *flags, program=None, device='cpu', memory='256MiB', **rest):
        server = Server(name, program or self.attnd, self.folder,
                        [f'--device={device}', f'--memory_limit={memory}', *flags], **rest)
        self.servers.append(server)
        return server

    def faulty_server(self, name, devices, *flags):
        folder = self.folder / f'{name}.faults'
        folder.mkdir()
        server = self.server(name, '--drain_time=5s', *flags, device=f'cpu*{devices}',
                             program=self.faulty, environment={'ATTND_FAULTS': str(folder)})
        return server, folder

    def load(self, server, *flags):
        return Load(self.attnload, server, *flags)

    def run(self, program, *flags):
        """Runs a program of the build to its end, whatever comes of it."""
        processes.run([self.build / program, *flags])

    def certificate(self, name, *flags):
        """Writes NAME.pem and NAME.key, both whole."""
        new = self.folder / f'{name}.new'
        subprocess.run([self.build / 'tests/make_certificate', new, f'--ip={processes.HOST}',
                        *flags], check=True)
        for kind in ('key', 'pem'):
            os.replace(f'{new}.{kind}', self.folder / f'{name}.{kind}')
        return self.folder / f'{name}.pem'

    # Servers and faults.

    def healthy(self):
        """Has load of every kind, and must not raise any alert."""
        socket = self.folder / 'healthy.regions'
        server = self.server('healthy', f'--region_socket={socket}', '--region_memory=128MiB',
                             '--region_slab=8MiB', '--slow_time=1ms',
                             device='cuda' if self.gpu else 'cpu*2')
        self.loads += [
            self.load(server, '--rate=20', '--shape=forward:f32:s64:h2:d64:causal@0.5',
                      '--shape=forward:bf16:b2:s256:h4/2:d64@0.3',
                      '--shape=backward:f32:s128:h2:d32@0.2'),
            self.load(server, '--rate=5', '--transport=stream', '--shape=forward:f32:s512:h2:d64'),
        ]
        for transport in ['region'] + ['device_region'] * self.gpu:
            # Comes and goes, and its regions with it.
            self.loads.append(Repeat(lambda transport=transport: self.run(
                'client/attnload/attnload', server.target, f'--transport={transport}',
                '--rate=10', '--duration=2', f'--region_socket={socket}',
                '--shape=forward:f32:s64:h2:d64'), 1))

    def dead(self):
        down = self.server('down')
        self.faults.append(Fault(down, [('AttndDown', {})], down.kill, down.start, 'kill -9'))
        restarting = self.server('restarting')
        self.faults.append(Restarts(restarting, self.prometheus).fault())

    def broken_devices(self):
        # Calls that are many at once, one a group: both of its devices get some.
        lost, lost_files = self.faulty_server('lost', 2, '--lanes=1', '--run_here_flops=0',
                                              '--max_batch_requests=1')
        broken, broken_files = self.faulty_server('broken', 1)
        stuck, stuck_files = self.faulty_server('stuck', 1, '--max_batch_requests=1')
        small = '--shape=forward:f32:s128:h1:d64'
        self.loads.append(self.load(lost, '--concurrency=16', small))
        self.loads.append(self.load(broken, '--rate=20', small))

        def mend(server, file):
            def remove():
                file.unlink()
                server.restart()
            return remove
        one, only, hang = lost_files / 'break.1', broken_files / 'break.0', stuck_files / 'hang.0'
        self.faults.append(Fault(
            lost, [('AttndDeviceLost', {'device': 'fake:1'})], one.touch, mend(lost, one),
            'one of two devices answers with an error', ['AttndErrors']))
        self.faults.append(Fault(
            broken, [('AttndNoDevice', {}), ('AttndErrors', {})], only.touch, mend(broken, only),
            'the only device answers with an error'))
        waiting = self.load(stuck, '--concurrency=8', '--timeout=600', small)

        def inject():
            hang.touch()
            waiting.start()

        def remove():
            # It drains for as long as it may, and is seen to.
            stuck.end()
            hang.unlink()
            waiting.stop()
            stuck.start()
        self.faults.append(Fault(stuck, [('AttndQueueStuck', {}), ('AttndDeviceHangs', {'device': 'fake:0'})], inject, remove,
                                 'a kernel that does not end', ['AttndQueueSlow']))

    def too_much(self):
        one_at_a_time = ['--lanes=1', '--threads=1', '--max_batch_requests=1']
        slow = self.server('slow', *one_at_a_time, memory='512MiB', yields=True)
        self.faults.append(lasting(
            slow, [('AttndQueueSlow', {}), ('AttndDeadlinesMissed', {})],
            'more work than the device can do, and clients in a hurry',
            self.load(slow, '--concurrency=48', '--timeout=600', HEAVY),
            self.load(slow, '--rate=10', '--timeout=1', HEAVY),
            side_effects=['AttndQueueStuck', 'AttndMemoryNearLimit', 'AttndRefusing']))
        full = self.server('full', '--max_queue_requests=2', *one_at_a_time, yields=True)
        self.faults.append(lasting(
            full, [('AttndRefusing', {'reason': 'queue_full'})],
            'a queue of two, and eight clients',
            self.load(full, '--concurrency=8', '--attempts=20', HEAVY),
            side_effects=['AttndQueueSlow', 'AttndDeadlinesMissed', 'AttndQueueStuck']))
        # The account is some 56 MiB, and each request takes 4 of them for a second or so.
        # What finds no room waits for 10 s and is refused.
        tight = self.server('tight', *one_at_a_time, memory='128MiB', yields=True)
        self.faults.append(lasting(
            tight, [('AttndMemoryNearLimit', {}), ('AttndRefusing', {'reason': 'memory'})],
            'a small memory, and many requests',
            self.load(tight, '--concurrency=48', '--attempts=20', '--transport=unary',
                      '--shape=forward:f32:s32768:h1:d8'),
            side_effects=['AttndQueueSlow', 'AttndDeadlinesMissed', 'AttndQueueStuck']))

    def crowd(self):
        # Some 430 of its descriptors are not for connections.
        descriptors, connections = 2600, 2250
        processes.allow_descriptors(2 * descriptors)
        server = self.server('crowded', '--max_connections=4000',
                             '--max_connections_per_client=4000', '--header_time=1h',
                             '--idle_timeout=0', nofile=descriptors)
        self.faults.append(lasting(
            server, [('AttndDescriptorsNearLimit', {}), ('AttndConnectionsNearLimit', {}),
                     ('AttndConnectionsRefused', {'reason': 'max_connections'})],
            f'{connections} idle connections with {descriptors} descriptors',
            peers.IdleConnections(server.address, connections)))

    def tls(self):
        """One server that strangers call and whose certificate ends today, and one whose files
        are broken."""
        good, short = ['--ends=2160h'], ['--ends=1h']
        authority = self.certificate('authority', '--authority', '--cn=authority', *good)
        signed = [f'--ca={authority.with_suffix("")}']
        tokens = self.folder / 'tokens'
        good_tokens = f'someone sha256:{"5" * 64}\n'
        tokens.write_text(good_tokens)

        short_certificate = self.certificate('short', *signed, *short)
        guarded = self.server('guarded', f'--tls_cert={short_certificate}',
                              f'--tls_key={short_certificate.with_suffix(".key")}',
                              f'--token_file={tokens}', '--require_identity')
        self.faults.append(Fault(
            guarded, [('AttndCertificateExpires', {})], lambda: None,
            lambda: self.certificate('short', *signed, *good),
            'a certificate that ends in an hour'))
        self.faults.append(lasting(
            guarded, [('AttndTlsHandshakesFailing', {})], 'peers that speak HTTP/1.1 to TLS',
            Repeat(lambda: peers.speak_http1(guarded.address), 0.2)))
        self.faults.append(lasting(
            guarded, [('AttndUnauthenticated', {'reason': 'no_identity'})],
            'calls without a token',
            # attnload would end with its first call.
            Repeat(lambda: self.run('client/attnctl', 'info', f'--server={guarded.target}',
                                    f'--tls_ca={authority}'), 0.2)))

        certificate = self.certificate('served', *signed, *good)
        clients = self.folder / 'clients.pem'
        shutil.copy(authority, clients)
        files_tokens = self.folder / 'files.tokens'
        files_tokens.write_text(good_tokens)
        files = self.server('files', f'--tls_cert={certificate}',
                            f'--tls_key={certificate.with_suffix(".key")}',
                            f'--tls_client_ca={clients}', f'--token_file={files_tokens}')
        leaver = peers.TlsClient(files.address, authority,
                                 self.certificate('leaver', *signed, *good))

        def disown():
            leaver.connect()
            stranger = self.certificate('stranger', '--authority', '--cn=stranger', *good)
            os.replace(stranger, clients)
            processes.wait_for('a client whose authority is gone to be ended', lambda: (
                self.prometheus.values('attnd_tls_ended_connections_total')[files.instance] == 1))
        self.disown_a_client = disown
        kept = self.folder / 'kept.pem'

        def break_files():
            shutil.copy(certificate, kept)
            certificate.write_text('no certificate\n')
            files_tokens.write_text('no token\n')

        def mend_files():
            os.replace(kept, certificate)
            files_tokens.write_text(good_tokens)
        self.faults.append(Fault(
            files, [('AttndTlsFilesBad', {}), ('AttndTokenFileBad', {})], break_files,
            mend_files, 'a certificate and tokens that are none'))

    def regions(self):
        socket = str(self.folder / 'regions.socket')
        server = self.server('regions', f'--region_socket={socket}', '--region_memory=16MiB',
                             '--region_slab=2MiB', '--max_regions_per_user=1000',
                             '--region_memory_per_user=1GiB')
        held = []

        def lease():
            peer = peers.lease_region(socket, MIB)
            reply, descriptors, _, _ = peers.receive_with_descriptors(peer)
            for descriptor in descriptors:
                os.close(descriptor)
            if descriptors:
                held.append(peer)
            else:
                peer.close()
        repeat = Repeat(lease, 0.1)

        def remove():
            repeat.stop()
            while held:
                held.pop().close()
        self.faults.append(Fault(server, [('AttndRegionsRefused', {'reason': 'memory'})],
                                 repeat.start, remove, 'clients that keep every region'))

    def strangers_and_the_log(self):
        self.log = SlowReader()
        # With a line for each call the log is full in seconds.
        server = self.server('flooded', '--log_level=debug', stderr=self.log.end_to_write)
        self.loads.append(self.load(server, '--rate=100', '--shape=forward:f32:s8:h1:d8'))
        self.faults.append(lasting(server, [('AttndFlooded', {})], 'peers that break HTTP/2',
                                   Repeat(lambda: peers.break_http2(server.address), 0.1)))
        self.faults.append(lasting(server, [('AttndLogLinesLost', {})],
                                   'a log that nobody reads', self.log))

    def close(self):
        for thing in self.loads:
            thing.stop()
        for server in self.servers:
            server.stop()
