// Preloaded into servers that would listen on all interfaces at a fixed port:
// they get the loopback interface and a free port, and say which.
const net = require('node:net');
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  this.once('listening', () => process.stderr.write(`LISTENING ${this.address().port}\n`));
  return listen.call(this, { host: '127.0.0.1', port: 0 }, args.findLast((a) => typeof a === 'function'));
};
